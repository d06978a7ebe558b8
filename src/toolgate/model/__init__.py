"""What a call is: plain values, no decisions and no I/O.

Values that every call makes anew (Call, Context, Result, Envelope, Answer, Entry) are plain slotted dataclasses and not
frozen ones: making a frozen one costs five microseconds, and a call makes a dozen. Nobody changes one after making it.
"""
