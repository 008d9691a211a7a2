module {
	func.func @sdsc_bundle(%pool_base_addr: !sdscbundle.input_arg<index>, %arg_0_base_addr: !sdscbundle.input_arg<index>, %arg_1_base_addr: !sdscbundle.input_arg<index>, %arg_2_base_addr: !sdscbundle.input_arg<index>, %arg_3_base_addr: !sdscbundle.input_arg<index>, %arg_4_base_addr: !sdscbundle.input_arg<index>, %arg_5_base_addr: !sdscbundle.input_arg<index>) {
		%pool = sdscbundle.input_arg_extract value from %pool_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_0 = sdscbundle.input_arg_extract value from %arg_0_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_1 = sdscbundle.input_arg_extract value from %arg_1_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_2 = sdscbundle.input_arg_extract value from %arg_2_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_3 = sdscbundle.input_arg_extract value from %arg_3_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_4 = sdscbundle.input_arg_extract value from %arg_4_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_5 = sdscbundle.input_arg_extract value from %arg_5_base_addr : !sdscbundle.input_arg<index> -> index
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
		%pool_offset_1536 = arith.constant 1536 : index
		%pool_addr_1536 = arith.addi %pool, %pool_offset_1536 : index
		%pool_offset_1664 = arith.constant 1664 : index
		%pool_addr_1664 = arith.addi %pool, %pool_offset_1664 : index
		%pool_offset_1792 = arith.constant 1792 : index
		%pool_addr_1792 = arith.addi %pool, %pool_offset_1792 : index
		%arg_3_core_offset_128 = arith.constant 128 : index
		%arg_3_core_128 = arith.addi %arg_3, %arg_3_core_offset_128 : index
		%arg_3_core_offset_256 = arith.constant 256 : index
		%arg_3_core_256 = arith.addi %arg_3, %arg_3_core_offset_256 : index
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_128, %arg_0_core_256, %pool_addr_0, %pool_addr_128, %pool_addr_256) {sdsc_filename="sdsc_0.json", "symbol_ids"=[-1, -2, -3, -4, -5, -6]}
		sdscbundle.sdsc_execute (%pool_addr_0, %pool_addr_128, %pool_addr_256, %arg_4) {sdsc_filename="sdsc_1.json", "symbol_ids"=[-7, -8, -9, -10]}
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_128, %arg_0_core_256, %pool_addr_0, %pool_addr_128, %pool_addr_256, %pool_addr_384, %pool_addr_512, %pool_addr_640) {sdsc_filename="sdsc_2.json", "symbol_ids"=[-11, -12, -13, -14, -15, -16, -17, -18, -19]}
		sdscbundle.sdsc_execute (%pool_addr_384, %pool_addr_512, %pool_addr_640) {sdsc_filename="sdsc_3.json", "symbol_ids"=[-20, -21, -22]}
		sdscbundle.sdsc_execute (%pool_addr_384, %pool_addr_512, %pool_addr_640, %pool_addr_1536, %pool_addr_1664, %pool_addr_1792) {sdsc_filename="sdsc_4.json", "symbol_ids"=[-23, -24, -25, -26, -27, -28]}
		sdscbundle.sdsc_execute (%pool_addr_1536, %pool_addr_1664, %pool_addr_1792, %arg_4) {sdsc_filename="sdsc_5.json", "symbol_ids"=[-29, -30, -31, -32]}
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_128, %arg_0_core_256, %pool_addr_0, %pool_addr_128, %pool_addr_256, %pool_addr_384, %pool_addr_512, %pool_addr_640) {sdsc_filename="sdsc_6.json", "symbol_ids"=[-33, -34, -35, -36, -37, -38, -39, -40, -41]}
		sdscbundle.sdsc_execute (%pool_addr_1536, %pool_addr_1664, %pool_addr_1792, %arg_5, %pool_addr_0, %pool_addr_128, %pool_addr_256) {sdsc_filename="sdsc_7.json", "symbol_ids"=[-42, -43, -44, -45, -46, -47, -48]}
		sdscbundle.sdsc_execute (%pool_addr_0, %pool_addr_128, %pool_addr_256) {sdsc_filename="sdsc_8.json", "symbol_ids"=[-49, -50, -51]}
		sdscbundle.sdsc_execute (%pool_addr_384, %pool_addr_512, %pool_addr_640, %pool_addr_0, %pool_addr_128, %pool_addr_256) {sdsc_filename="sdsc_9.json", "symbol_ids"=[-52, -53, -54, -55, -56, -57]}
		sdscbundle.sdsc_execute (%pool_addr_384, %pool_addr_512, %pool_addr_640, %arg_1) {sdsc_filename="sdsc_10.json", "symbol_ids"=[-58, -59, -60, -61]}
		sdscbundle.sdsc_execute (%pool_addr_384, %pool_addr_512, %pool_addr_640, %arg_2, %arg_3, %arg_3_core_128, %arg_3_core_256) {sdsc_filename="sdsc_11.json", "symbol_ids"=[-62, -63, -64, -65, -66, -67, -68]}
		return
	}
}
