"""Tuning records: lines of logs, tasks, the choice among records, schedules of a MetaSchedule database."""
