module {
	func.func @sdsc_bundle(%pool_base_addr: !sdscbundle.input_arg<index>, %arg_0_base_addr: !sdscbundle.input_arg<index>, %arg_1_base_addr: !sdscbundle.input_arg<index>) {
		%pool = sdscbundle.input_arg_extract value from %pool_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_0 = sdscbundle.input_arg_extract value from %arg_0_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_1 = sdscbundle.input_arg_extract value from %arg_1_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_0_core_offset_128 = arith.constant 128 : index
		%arg_0_core_128 = arith.addi %arg_0, %arg_0_core_offset_128 : index
		%arg_0_core_offset_256 = arith.constant 256 : index
		%arg_0_core_256 = arith.addi %arg_0, %arg_0_core_offset_256 : index
		%pool_offset_0 = arith.constant 0 : index
		%pool_addr_0 = arith.addi %pool, %pool_offset_0 : index
		%pool_offset_128 = arith.constant 128 : index
		%pool_addr_128 = arith.addi %pool, %pool_offset_128 : index
		%pool_offset_256 = arith.constant 256 : index
		%pool_addr_256 = arith.addi %pool, %pool_offset_256 : index
		%pool_offset_384 = arith.constant 384 : index
		%pool_addr_384 = arith.addi %pool, %pool_offset_384 : index
		%pool_offset_512 = arith.constant 512 : index
		%pool_addr_512 = arith.addi %pool, %pool_offset_512 : index
		%pool_offset_640 = arith.constant 640 : index
		%pool_addr_640 = arith.addi %pool, %pool_offset_640 : index
		%arg_1_core_offset_128 = arith.constant 128 : index
		%arg_1_core_128 = arith.addi %arg_1, %arg_1_core_offset_128 : index
		%arg_1_core_offset_256 = arith.constant 256 : index
		%arg_1_core_256 = arith.addi %arg_1, %arg_1_core_offset_256 : index
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_128, %arg_0_core_256, %pool_addr_0, %pool_addr_128, %pool_addr_256) {sdsc_filename="sdsc_0.json", "symbol_ids"=[-1, -2, -3, -4, -5, -6]}
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_128, %arg_0_core_256, %pool_addr_0, %pool_addr_128, %pool_addr_256, %pool_addr_384, %pool_addr_512, %pool_addr_640) {sdsc_filename="sdsc_1.json", "symbol_ids"=[-7, -8, -9, -10, -11, -12, -13, -14, -15]}
		sdscbundle.sdsc_execute (%pool_addr_384, %pool_addr_512, %pool_addr_640) {sdsc_filename="sdsc_2.json", "symbol_ids"=[-16, -17, -18]}
		sdscbundle.sdsc_execute (%pool_addr_384, %pool_addr_512, %pool_addr_640, %pool_addr_0, %pool_addr_128, %pool_addr_256) {sdsc_filename="sdsc_3.json", "symbol_ids"=[-19, -20, -21, -22, -23, -24]}
		sdscbundle.sdsc_execute (%pool_addr_384, %pool_addr_512, %pool_addr_640, %pool_addr_0, %pool_addr_128, %pool_addr_256, %arg_1, %arg_1_core_128, %arg_1_core_256) {sdsc_filename="sdsc_4.json", "symbol_ids"=[-25, -26, -27, -28, -29, -30, -31, -32, -33]}
		return
	}
}
