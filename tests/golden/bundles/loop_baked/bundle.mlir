#map_0 = affine_map<(d0)[s0] -> (s0 + 8192*d0)>
module {
	func.func @sdsc_bundle() {
		%c0 = arith.constant 0 : index
		%c1 = arith.constant 1 : index
		%loop_bound_0 = arith.constant 4 : index
		%sym_0 = arith.constant 0 : index
		%sym_4096 = arith.constant 4096 : index
		%sym_17179869184 = arith.constant 17179869184 : index
		%sym_17179873280 = arith.constant 17179873280 : index
		scf.for %i_0 = %c0 to %loop_bound_0 step %c1 {
			%addr_0 = affine.apply #map_0(%i_0)[%sym_0]
			%addr_1 = affine.apply #map_0(%i_0)[%sym_4096]
			%addr_2 = affine.apply #map_0(%i_0)[%sym_17179869184]
			%addr_3 = affine.apply #map_0(%i_0)[%sym_17179873280]
			sdscbundle.sdsc_execute (%addr_0, %addr_1, %addr_2, %addr_3) {sdsc_filename="sdsc_0.json", "symbol_ids"=[-1, -2, -3, -4]}
		}
		return
	}
}
