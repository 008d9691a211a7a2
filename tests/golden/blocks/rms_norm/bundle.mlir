module {
	func.func @sdsc_bundle(%pool_base_addr: !sdscbundle.input_arg<index>, %arg_0_base_addr: !sdscbundle.input_arg<index>, %arg_1_base_addr: !sdscbundle.input_arg<index>, %arg_2_base_addr: !sdscbundle.input_arg<index>, %arg_3_base_addr: !sdscbundle.input_arg<index>, %arg_4_base_addr: !sdscbundle.input_arg<index>) {
		%pool = sdscbundle.input_arg_extract value from %pool_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_0 = sdscbundle.input_arg_extract value from %arg_0_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_1 = sdscbundle.input_arg_extract value from %arg_1_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_2 = sdscbundle.input_arg_extract value from %arg_2_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_3 = sdscbundle.input_arg_extract value from %arg_3_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_4 = sdscbundle.input_arg_extract value from %arg_4_base_addr : !sdscbundle.input_arg<index> -> index
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
		%pool_offset_1152 = arith.constant 1152 : index
		%pool_addr_1152 = arith.addi %pool, %pool_offset_1152 : index
		%pool_offset_1280 = arith.constant 1280 : index
		%pool_addr_1280 = arith.addi %pool, %pool_offset_1280 : index
		%pool_offset_1408 = arith.constant 1408 : index
		%pool_addr_1408 = arith.addi %pool, %pool_offset_1408 : index
		%arg_2_core_offset_128 = arith.constant 128 : index
		%arg_2_core_128 = arith.addi %arg_2, %arg_2_core_offset_128 : index
		%arg_2_core_offset_256 = arith.constant 256 : index
		%arg_2_core_256 = arith.addi %arg_2, %arg_2_core_offset_256 : index
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_128, %arg_0_core_256, %pool_addr_0, %pool_addr_128, %pool_addr_256) {sdsc_filename="sdsc_0.json", "symbol_ids"=[-1, -2, -3, -4, -5, -6]}
		sdscbundle.sdsc_execute (%pool_addr_0, %pool_addr_128, %pool_addr_256, %pool_addr_1152, %pool_addr_1280, %pool_addr_1408) {sdsc_filename="sdsc_1.json", "symbol_ids"=[-7, -8, -9, -10, -11, -12]}
		sdscbundle.sdsc_execute (%pool_addr_1152, %pool_addr_1280, %pool_addr_1408, %arg_3) {sdsc_filename="sdsc_2.json", "symbol_ids"=[-13, -14, -15, -16]}
		sdscbundle.sdsc_execute (%pool_addr_1152, %pool_addr_1280, %pool_addr_1408, %arg_4) {sdsc_filename="sdsc_3.json", "symbol_ids"=[-17, -18, -19, -20]}
		sdscbundle.sdsc_execute (%pool_addr_1152, %pool_addr_1280, %pool_addr_1408) {sdsc_filename="sdsc_4.json", "symbol_ids"=[-21, -22, -23]}
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_128, %arg_0_core_256, %pool_addr_1152, %pool_addr_1280, %pool_addr_1408, %pool_addr_0, %pool_addr_128, %pool_addr_256) {sdsc_filename="sdsc_5.json", "symbol_ids"=[-24, -25, -26, -27, -28, -29, -30, -31, -32]}
		sdscbundle.sdsc_execute (%pool_addr_0, %pool_addr_128, %pool_addr_256, %arg_1, %arg_2, %arg_2_core_128, %arg_2_core_256) {sdsc_filename="sdsc_6.json", "symbol_ids"=[-33, -34, -35, -36, -37, -38, -39]}
		return
	}
}
