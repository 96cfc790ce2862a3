"""Weight formats: what a matrix is rounded to, in how many bits, and what the result means. `none` leaves it as the checkpoint has it."""
from penstock.core.registry import Table

TABLE = Table("weight format", {
    "none": "penstock.compute.quant.none:Stored",
    "int8": "penstock.compute.quant.int8:Int8",
    "int4": "penstock.compute.quant.int4:Int4",
})
