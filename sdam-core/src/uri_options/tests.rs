use super::{driver, table};

#[test]
fn every_method_for_a_drivers_option_looks_up_a_row_of_the_table() {
    for name in driver::LOOKED_UP {
        let (row, alias) = table::find(name).unwrap();
        assert_eq!(row.name, *name);
        assert!(alias.is_none(), "{name}");
        assert!(row.user == table::User::Driver, "{name}");
    }
}
