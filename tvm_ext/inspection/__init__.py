"""See inside: stages, analysis, profile, memory plan, report. Looks at results of the other rooms; changes nothing."""
