"""What people read: live views, tables, stories."""
