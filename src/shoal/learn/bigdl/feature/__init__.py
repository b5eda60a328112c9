"""What BigDL makes of rows."""
