"""Instructions that a CPU may lack, executed in Python there."""

#: Module that a process of its own imports, for Linux to give it tile registers; and the variable of the environment
#: that names the folder where the names of the instructions appear that it executes.
GRANTED, FOLDER = "tests.emulation.granted", "TVM_EXT_TEST_EXECUTED"
