"""The property of t/460_money_property.py over many histories: what is booked is what the provider has moved.  F1, C8.

Takes about twenty minutes.  PAYFLOW_SEQUENCES=100 makes it shorter, PAYFLOW_SEED
repeats a run: the seed is printed.
"""

import os
import runpy
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "t"))

os.environ.setdefault("PAYFLOW_SEQUENCES", "1500")
os.environ.setdefault("PAYFLOW_STEPS", "14")
runpy.run_path(os.path.join(HERE, "..", "t", "460_money_property.py"), run_name="__main__")
