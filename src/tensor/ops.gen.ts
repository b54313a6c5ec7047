// Written by `npm run gen-ops` from ops.list. Names follow ATen: snake_case becomes camelCase, arguments without a default are
// positional, the others come in one options object. PyTorch's documentation is the documentation.
import { type DType, type GeneratorHandle, Handle, type OpFunction, op } from '../engine/index.ts'
import type { MemoryFormat, Scalar } from './dtype.ts'
import type { Tensor } from './tensor.ts'

let f_abs: OpFunction = (...a) => {
  f_abs = op('abs')
  return f_abs(...a)
}
let f_add_Tensor: OpFunction = (...a) => {
  f_add_Tensor = op('add.Tensor')
  return f_add_Tensor(...a)
}
let f_add_Scalar: OpFunction = (...a) => {
  f_add_Scalar = op('add.Scalar')
  return f_add_Scalar(...a)
}
let f_add__Tensor: OpFunction = (...a) => {
  f_add__Tensor = op('add_.Tensor')
  return f_add__Tensor(...a)
}
let f_add__Scalar: OpFunction = (...a) => {
  f_add__Scalar = op('add_.Scalar')
  return f_add__Scalar(...a)
}
let f_addcmul_: OpFunction = (...a) => {
  f_addcmul_ = op('addcmul_')
  return f_addcmul_(...a)
}
let f_all: OpFunction = (...a) => {
  f_all = op('all')
  return f_all(...a)
}
let f_all_dim: OpFunction = (...a) => {
  f_all_dim = op('all.dim')
  return f_all_dim(...a)
}
let f_amax: OpFunction = (...a) => {
  f_amax = op('amax')
  return f_amax(...a)
}
let f_arange_start_step: OpFunction = (...a) => {
  f_arange_start_step = op('arange.start_step')
  return f_arange_start_step(...a)
}
let f_arange_start: OpFunction = (...a) => {
  f_arange_start = op('arange.start')
  return f_arange_start(...a)
}
let f_arange: OpFunction = (...a) => {
  f_arange = op('arange')
  return f_arange(...a)
}
let f_argmax: OpFunction = (...a) => {
  f_argmax = op('argmax')
  return f_argmax(...a)
}
let f_binary_cross_entropy_with_logits: OpFunction = (...a) => {
  f_binary_cross_entropy_with_logits = op('binary_cross_entropy_with_logits')
  return f_binary_cross_entropy_with_logits(...a)
}
let f_cat: OpFunction = (...a) => {
  f_cat = op('cat')
  return f_cat(...a)
}
let f_chunk: OpFunction = (...a) => {
  f_chunk = op('chunk')
  return f_chunk(...a)
}
let f_clamp: OpFunction = (...a) => {
  f_clamp = op('clamp')
  return f_clamp(...a)
}
let f_clamp_: OpFunction = (...a) => {
  f_clamp_ = op('clamp_')
  return f_clamp_(...a)
}
let f_clamp_max: OpFunction = (...a) => {
  f_clamp_max = op('clamp_max')
  return f_clamp_max(...a)
}
let f_clamp_max_Tensor: OpFunction = (...a) => {
  f_clamp_max_Tensor = op('clamp_max.Tensor')
  return f_clamp_max_Tensor(...a)
}
let f_clamp_min: OpFunction = (...a) => {
  f_clamp_min = op('clamp_min')
  return f_clamp_min(...a)
}
let f_clamp_min_Tensor: OpFunction = (...a) => {
  f_clamp_min_Tensor = op('clamp_min.Tensor')
  return f_clamp_min_Tensor(...a)
}
let f_clone: OpFunction = (...a) => {
  f_clone = op('clone')
  return f_clone(...a)
}
let f_constant_pad_nd: OpFunction = (...a) => {
  f_constant_pad_nd = op('constant_pad_nd')
  return f_constant_pad_nd(...a)
}
let f_contiguous: OpFunction = (...a) => {
  f_contiguous = op('contiguous')
  return f_contiguous(...a)
}
let f_conv2d: OpFunction = (...a) => {
  f_conv2d = op('conv2d')
  return f_conv2d(...a)
}
let f_conv_transpose2d_input: OpFunction = (...a) => {
  f_conv_transpose2d_input = op('conv_transpose2d.input')
  return f_conv_transpose2d_input(...a)
}
let f_copy_: OpFunction = (...a) => {
  f_copy_ = op('copy_')
  return f_copy_(...a)
}
let f_cos: OpFunction = (...a) => {
  f_cos = op('cos')
  return f_cos(...a)
}
let f_cumsum: OpFunction = (...a) => {
  f_cumsum = op('cumsum')
  return f_cumsum(...a)
}
let f_detach: OpFunction = (...a) => {
  f_detach = op('detach')
  return f_detach(...a)
}
let f_div_Tensor: OpFunction = (...a) => {
  f_div_Tensor = op('div.Tensor')
  return f_div_Tensor(...a)
}
let f_div_Scalar: OpFunction = (...a) => {
  f_div_Scalar = op('div.Scalar')
  return f_div_Scalar(...a)
}
let f_div_Tensor_mode: OpFunction = (...a) => {
  f_div_Tensor_mode = op('div.Tensor_mode')
  return f_div_Tensor_mode(...a)
}
let f_div_Scalar_mode: OpFunction = (...a) => {
  f_div_Scalar_mode = op('div.Scalar_mode')
  return f_div_Scalar_mode(...a)
}
let f_dropout: OpFunction = (...a) => {
  f_dropout = op('dropout')
  return f_dropout(...a)
}
let f_embedding: OpFunction = (...a) => {
  f_embedding = op('embedding')
  return f_embedding(...a)
}
let f_empty_memory_format: OpFunction = (...a) => {
  f_empty_memory_format = op('empty.memory_format')
  return f_empty_memory_format(...a)
}
let f_eq_Tensor: OpFunction = (...a) => {
  f_eq_Tensor = op('eq.Tensor')
  return f_eq_Tensor(...a)
}
let f_eq_Scalar: OpFunction = (...a) => {
  f_eq_Scalar = op('eq.Scalar')
  return f_eq_Scalar(...a)
}
let f_equal: OpFunction = (...a) => {
  f_equal = op('equal')
  return f_equal(...a)
}
let f_exp: OpFunction = (...a) => {
  f_exp = op('exp')
  return f_exp(...a)
}
let f_exp_: OpFunction = (...a) => {
  f_exp_ = op('exp_')
  return f_exp_(...a)
}
let f_expand: OpFunction = (...a) => {
  f_expand = op('expand')
  return f_expand(...a)
}
let f_expm1: OpFunction = (...a) => {
  f_expm1 = op('expm1')
  return f_expm1(...a)
}
let f_fill__Scalar: OpFunction = (...a) => {
  f_fill__Scalar = op('fill_.Scalar')
  return f_fill__Scalar(...a)
}
let f_fill__Tensor: OpFunction = (...a) => {
  f_fill__Tensor = op('fill_.Tensor')
  return f_fill__Tensor(...a)
}
let f_flatten_using_ints: OpFunction = (...a) => {
  f_flatten_using_ints = op('flatten.using_ints')
  return f_flatten_using_ints(...a)
}
let f_flip: OpFunction = (...a) => {
  f_flip = op('flip')
  return f_flip(...a)
}
let f_full: OpFunction = (...a) => {
  f_full = op('full')
  return f_full(...a)
}
let f_gather: OpFunction = (...a) => {
  f_gather = op('gather')
  return f_gather(...a)
}
let f_ge_Tensor: OpFunction = (...a) => {
  f_ge_Tensor = op('ge.Tensor')
  return f_ge_Tensor(...a)
}
let f_ge_Scalar: OpFunction = (...a) => {
  f_ge_Scalar = op('ge.Scalar')
  return f_ge_Scalar(...a)
}
let f_gelu: OpFunction = (...a) => {
  f_gelu = op('gelu')
  return f_gelu(...a)
}
let f_gt_Tensor: OpFunction = (...a) => {
  f_gt_Tensor = op('gt.Tensor')
  return f_gt_Tensor(...a)
}
let f_gt_Scalar: OpFunction = (...a) => {
  f_gt_Scalar = op('gt.Scalar')
  return f_gt_Scalar(...a)
}
let f_index_Tensor: OpFunction = (...a) => {
  f_index_Tensor = op('index.Tensor')
  return f_index_Tensor(...a)
}
let f_index_copy: OpFunction = (...a) => {
  f_index_copy = op('index_copy')
  return f_index_copy(...a)
}
let f_index_copy_: OpFunction = (...a) => {
  f_index_copy_ = op('index_copy_')
  return f_index_copy_(...a)
}
let f_index_fill_int_Scalar: OpFunction = (...a) => {
  f_index_fill_int_Scalar = op('index_fill.int_Scalar')
  return f_index_fill_int_Scalar(...a)
}
let f_index_select: OpFunction = (...a) => {
  f_index_select = op('index_select')
  return f_index_select(...a)
}
let f_isfinite: OpFunction = (...a) => {
  f_isfinite = op('isfinite')
  return f_isfinite(...a)
}
let f_isnan: OpFunction = (...a) => {
  f_isnan = op('isnan')
  return f_isnan(...a)
}
let f_layer_norm: OpFunction = (...a) => {
  f_layer_norm = op('layer_norm')
  return f_layer_norm(...a)
}
let f_le_Tensor: OpFunction = (...a) => {
  f_le_Tensor = op('le.Tensor')
  return f_le_Tensor(...a)
}
let f_le_Scalar: OpFunction = (...a) => {
  f_le_Scalar = op('le.Scalar')
  return f_le_Scalar(...a)
}
let f_lerp_Tensor: OpFunction = (...a) => {
  f_lerp_Tensor = op('lerp.Tensor')
  return f_lerp_Tensor(...a)
}
let f_lerp_Scalar: OpFunction = (...a) => {
  f_lerp_Scalar = op('lerp.Scalar')
  return f_lerp_Scalar(...a)
}
let f_lerp__Tensor: OpFunction = (...a) => {
  f_lerp__Tensor = op('lerp_.Tensor')
  return f_lerp__Tensor(...a)
}
let f_lerp__Scalar: OpFunction = (...a) => {
  f_lerp__Scalar = op('lerp_.Scalar')
  return f_lerp__Scalar(...a)
}
let f_linear: OpFunction = (...a) => {
  f_linear = op('linear')
  return f_linear(...a)
}
let f_log: OpFunction = (...a) => {
  f_log = op('log')
  return f_log(...a)
}
let f_log_softmax_int: OpFunction = (...a) => {
  f_log_softmax_int = op('log_softmax.int')
  return f_log_softmax_int(...a)
}
let f_logaddexp: OpFunction = (...a) => {
  f_logaddexp = op('logaddexp')
  return f_logaddexp(...a)
}
let f_logical_and: OpFunction = (...a) => {
  f_logical_and = op('logical_and')
  return f_logical_and(...a)
}
let f_logical_not: OpFunction = (...a) => {
  f_logical_not = op('logical_not')
  return f_logical_not(...a)
}
let f_logical_or: OpFunction = (...a) => {
  f_logical_or = op('logical_or')
  return f_logical_or(...a)
}
let f_logsumexp: OpFunction = (...a) => {
  f_logsumexp = op('logsumexp')
  return f_logsumexp(...a)
}
let f_lt_Tensor: OpFunction = (...a) => {
  f_lt_Tensor = op('lt.Tensor')
  return f_lt_Tensor(...a)
}
let f_lt_Scalar: OpFunction = (...a) => {
  f_lt_Scalar = op('lt.Scalar')
  return f_lt_Scalar(...a)
}
let f_masked_fill_Scalar: OpFunction = (...a) => {
  f_masked_fill_Scalar = op('masked_fill.Scalar')
  return f_masked_fill_Scalar(...a)
}
let f_masked_fill_Tensor: OpFunction = (...a) => {
  f_masked_fill_Tensor = op('masked_fill.Tensor')
  return f_masked_fill_Tensor(...a)
}
let f_masked_select: OpFunction = (...a) => {
  f_masked_select = op('masked_select')
  return f_masked_select(...a)
}
let f_matmul: OpFunction = (...a) => {
  f_matmul = op('matmul')
  return f_matmul(...a)
}
let f_max: OpFunction = (...a) => {
  f_max = op('max')
  return f_max(...a)
}
let f_max_dim: OpFunction = (...a) => {
  f_max_dim = op('max.dim')
  return f_max_dim(...a)
}
let f_max_other: OpFunction = (...a) => {
  f_max_other = op('max.other')
  return f_max_other(...a)
}
let f_max_pool2d: OpFunction = (...a) => {
  f_max_pool2d = op('max_pool2d')
  return f_max_pool2d(...a)
}
let f_maximum: OpFunction = (...a) => {
  f_maximum = op('maximum')
  return f_maximum(...a)
}
let f_mean: OpFunction = (...a) => {
  f_mean = op('mean')
  return f_mean(...a)
}
let f_mean_dim: OpFunction = (...a) => {
  f_mean_dim = op('mean.dim')
  return f_mean_dim(...a)
}
let f_min: OpFunction = (...a) => {
  f_min = op('min')
  return f_min(...a)
}
let f_min_dim: OpFunction = (...a) => {
  f_min_dim = op('min.dim')
  return f_min_dim(...a)
}
let f_min_other: OpFunction = (...a) => {
  f_min_other = op('min.other')
  return f_min_other(...a)
}
let f_minimum: OpFunction = (...a) => {
  f_minimum = op('minimum')
  return f_minimum(...a)
}
let f_mul_Tensor: OpFunction = (...a) => {
  f_mul_Tensor = op('mul.Tensor')
  return f_mul_Tensor(...a)
}
let f_mul_Scalar: OpFunction = (...a) => {
  f_mul_Scalar = op('mul.Scalar')
  return f_mul_Scalar(...a)
}
let f_mul__Tensor: OpFunction = (...a) => {
  f_mul__Tensor = op('mul_.Tensor')
  return f_mul__Tensor(...a)
}
let f_mul__Scalar: OpFunction = (...a) => {
  f_mul__Scalar = op('mul_.Scalar')
  return f_mul__Scalar(...a)
}
let f_nan_to_num: OpFunction = (...a) => {
  f_nan_to_num = op('nan_to_num')
  return f_nan_to_num(...a)
}
let f_narrow: OpFunction = (...a) => {
  f_narrow = op('narrow')
  return f_narrow(...a)
}
let f_ne_Tensor: OpFunction = (...a) => {
  f_ne_Tensor = op('ne.Tensor')
  return f_ne_Tensor(...a)
}
let f_ne_Scalar: OpFunction = (...a) => {
  f_ne_Scalar = op('ne.Scalar')
  return f_ne_Scalar(...a)
}
let f_neg: OpFunction = (...a) => {
  f_neg = op('neg')
  return f_neg(...a)
}
let f_nonzero: OpFunction = (...a) => {
  f_nonzero = op('nonzero')
  return f_nonzero(...a)
}
let f_norm_ScalarOpt_dim: OpFunction = (...a) => {
  f_norm_ScalarOpt_dim = op('norm.ScalarOpt_dim')
  return f_norm_ScalarOpt_dim(...a)
}
let f_norm_Scalar: OpFunction = (...a) => {
  f_norm_Scalar = op('norm.Scalar')
  return f_norm_Scalar(...a)
}
let f_normal_: OpFunction = (...a) => {
  f_normal_ = op('normal_')
  return f_normal_(...a)
}
let f_ones: OpFunction = (...a) => {
  f_ones = op('ones')
  return f_ones(...a)
}
let f_ones_like: OpFunction = (...a) => {
  f_ones_like = op('ones_like')
  return f_ones_like(...a)
}
let f_permute: OpFunction = (...a) => {
  f_permute = op('permute')
  return f_permute(...a)
}
let f_pow_Tensor_Tensor: OpFunction = (...a) => {
  f_pow_Tensor_Tensor = op('pow.Tensor_Tensor')
  return f_pow_Tensor_Tensor(...a)
}
let f_pow_Tensor_Scalar: OpFunction = (...a) => {
  f_pow_Tensor_Scalar = op('pow.Tensor_Scalar')
  return f_pow_Tensor_Scalar(...a)
}
let f_quantile_scalar: OpFunction = (...a) => {
  f_quantile_scalar = op('quantile.scalar')
  return f_quantile_scalar(...a)
}
let f_randn_generator: OpFunction = (...a) => {
  f_randn_generator = op('randn.generator')
  return f_randn_generator(...a)
}
let f_randn: OpFunction = (...a) => {
  f_randn = op('randn')
  return f_randn(...a)
}
let f_reciprocal: OpFunction = (...a) => {
  f_reciprocal = op('reciprocal')
  return f_reciprocal(...a)
}
let f_relu: OpFunction = (...a) => {
  f_relu = op('relu')
  return f_relu(...a)
}
let f_remainder_Tensor: OpFunction = (...a) => {
  f_remainder_Tensor = op('remainder.Tensor')
  return f_remainder_Tensor(...a)
}
let f_remainder_Scalar: OpFunction = (...a) => {
  f_remainder_Scalar = op('remainder.Scalar')
  return f_remainder_Scalar(...a)
}
let f_repeat: OpFunction = (...a) => {
  f_repeat = op('repeat')
  return f_repeat(...a)
}
let f_repeat_interleave_self_int: OpFunction = (...a) => {
  f_repeat_interleave_self_int = op('repeat_interleave.self_int')
  return f_repeat_interleave_self_int(...a)
}
let f_repeat_interleave_self_Tensor: OpFunction = (...a) => {
  f_repeat_interleave_self_Tensor = op('repeat_interleave.self_Tensor')
  return f_repeat_interleave_self_Tensor(...a)
}
let f_reshape: OpFunction = (...a) => {
  f_reshape = op('reshape')
  return f_reshape(...a)
}
let f_roll: OpFunction = (...a) => {
  f_roll = op('roll')
  return f_roll(...a)
}
let f_round: OpFunction = (...a) => {
  f_round = op('round')
  return f_round(...a)
}
let f_rsqrt: OpFunction = (...a) => {
  f_rsqrt = op('rsqrt')
  return f_rsqrt(...a)
}
let f_scatter_src: OpFunction = (...a) => {
  f_scatter_src = op('scatter.src')
  return f_scatter_src(...a)
}
let f_scatter_value: OpFunction = (...a) => {
  f_scatter_value = op('scatter.value')
  return f_scatter_value(...a)
}
let f_scatter__src: OpFunction = (...a) => {
  f_scatter__src = op('scatter_.src')
  return f_scatter__src(...a)
}
let f_scatter__value: OpFunction = (...a) => {
  f_scatter__value = op('scatter_.value')
  return f_scatter__value(...a)
}
let f_scatter_add: OpFunction = (...a) => {
  f_scatter_add = op('scatter_add')
  return f_scatter_add(...a)
}
let f_searchsorted_Tensor: OpFunction = (...a) => {
  f_searchsorted_Tensor = op('searchsorted.Tensor')
  return f_searchsorted_Tensor(...a)
}
let f_select_int: OpFunction = (...a) => {
  f_select_int = op('select.int')
  return f_select_int(...a)
}
let f_sigmoid: OpFunction = (...a) => {
  f_sigmoid = op('sigmoid')
  return f_sigmoid(...a)
}
let f_silu: OpFunction = (...a) => {
  f_silu = op('silu')
  return f_silu(...a)
}
let f_sin: OpFunction = (...a) => {
  f_sin = op('sin')
  return f_sin(...a)
}
let f_slice_Tensor: OpFunction = (...a) => {
  f_slice_Tensor = op('slice.Tensor')
  return f_slice_Tensor(...a)
}
let f_softmax_int: OpFunction = (...a) => {
  f_softmax_int = op('softmax.int')
  return f_softmax_int(...a)
}
let f_sort_stable: OpFunction = (...a) => {
  f_sort_stable = op('sort.stable')
  return f_sort_stable(...a)
}
let f_sort: OpFunction = (...a) => {
  f_sort = op('sort')
  return f_sort(...a)
}
let f_split_Tensor: OpFunction = (...a) => {
  f_split_Tensor = op('split.Tensor')
  return f_split_Tensor(...a)
}
let f_split_sizes: OpFunction = (...a) => {
  f_split_sizes = op('split.sizes')
  return f_split_sizes(...a)
}
let f_sqrt: OpFunction = (...a) => {
  f_sqrt = op('sqrt')
  return f_sqrt(...a)
}
let f_square: OpFunction = (...a) => {
  f_square = op('square')
  return f_square(...a)
}
let f_squeeze: OpFunction = (...a) => {
  f_squeeze = op('squeeze')
  return f_squeeze(...a)
}
let f_squeeze_dim: OpFunction = (...a) => {
  f_squeeze_dim = op('squeeze.dim')
  return f_squeeze_dim(...a)
}
let f_stack: OpFunction = (...a) => {
  f_stack = op('stack')
  return f_stack(...a)
}
let f_std_correction: OpFunction = (...a) => {
  f_std_correction = op('std.correction')
  return f_std_correction(...a)
}
let f_sub_Tensor: OpFunction = (...a) => {
  f_sub_Tensor = op('sub.Tensor')
  return f_sub_Tensor(...a)
}
let f_sub_Scalar: OpFunction = (...a) => {
  f_sub_Scalar = op('sub.Scalar')
  return f_sub_Scalar(...a)
}
let f_sum: OpFunction = (...a) => {
  f_sum = op('sum')
  return f_sum(...a)
}
let f_sum_dim_IntList: OpFunction = (...a) => {
  f_sum_dim_IntList = op('sum.dim_IntList')
  return f_sum_dim_IntList(...a)
}
let f_t: OpFunction = (...a) => {
  f_t = op('t')
  return f_t(...a)
}
let f_tanh: OpFunction = (...a) => {
  f_tanh = op('tanh')
  return f_tanh(...a)
}
let f_to_dtype: OpFunction = (...a) => {
  f_to_dtype = op('to.dtype')
  return f_to_dtype(...a)
}
let f_topk: OpFunction = (...a) => {
  f_topk = op('topk')
  return f_topk(...a)
}
let f_transpose_int: OpFunction = (...a) => {
  f_transpose_int = op('transpose.int')
  return f_transpose_int(...a)
}
let f_tril: OpFunction = (...a) => {
  f_tril = op('tril')
  return f_tril(...a)
}
let f_unbind_int: OpFunction = (...a) => {
  f_unbind_int = op('unbind.int')
  return f_unbind_int(...a)
}
let f_unsqueeze: OpFunction = (...a) => {
  f_unsqueeze = op('unsqueeze')
  return f_unsqueeze(...a)
}
let f_upsample_bicubic2d: OpFunction = (...a) => {
  f_upsample_bicubic2d = op('upsample_bicubic2d')
  return f_upsample_bicubic2d(...a)
}
let f_upsample_bilinear2d: OpFunction = (...a) => {
  f_upsample_bilinear2d = op('upsample_bilinear2d')
  return f_upsample_bilinear2d(...a)
}
let f_upsample_nearest2d: OpFunction = (...a) => {
  f_upsample_nearest2d = op('upsample_nearest2d')
  return f_upsample_nearest2d(...a)
}
let f__upsample_bilinear2d_aa: OpFunction = (...a) => {
  f__upsample_bilinear2d_aa = op('_upsample_bilinear2d_aa')
  return f__upsample_bilinear2d_aa(...a)
}
let f_view: OpFunction = (...a) => {
  f_view = op('view')
  return f_view(...a)
}
let f_where_self: OpFunction = (...a) => {
  f_where_self = op('where.self')
  return f_where_self(...a)
}
let f_where_ScalarSelf: OpFunction = (...a) => {
  f_where_ScalarSelf = op('where.ScalarSelf')
  return f_where_ScalarSelf(...a)
}
let f_where_ScalarOther: OpFunction = (...a) => {
  f_where_ScalarOther = op('where.ScalarOther')
  return f_where_ScalarOther(...a)
}
let f_where_Scalar: OpFunction = (...a) => {
  f_where_Scalar = op('where.Scalar')
  return f_where_Scalar(...a)
}
let f_where: OpFunction = (...a) => {
  f_where = op('where')
  return f_where(...a)
}
let f_zero_: OpFunction = (...a) => {
  f_zero_ = op('zero_')
  return f_zero_(...a)
}
let f_zeros: OpFunction = (...a) => {
  f_zeros = op('zeros')
  return f_zeros(...a)
}
let f__foreach_add__List: OpFunction = (...a) => {
  f__foreach_add__List = op('_foreach_add_.List')
  return f__foreach_add__List(...a)
}
let f__foreach_add__Scalar: OpFunction = (...a) => {
  f__foreach_add__Scalar = op('_foreach_add_.Scalar')
  return f__foreach_add__Scalar(...a)
}
let f__foreach_mul_Scalar: OpFunction = (...a) => {
  f__foreach_mul_Scalar = op('_foreach_mul.Scalar')
  return f__foreach_mul_Scalar(...a)
}
let f__foreach_mul__Scalar: OpFunction = (...a) => {
  f__foreach_mul__Scalar = op('_foreach_mul_.Scalar')
  return f__foreach_mul__Scalar(...a)
}
let f__foreach_mul__List: OpFunction = (...a) => {
  f__foreach_mul__List = op('_foreach_mul_.List')
  return f__foreach_mul__List(...a)
}
let f__foreach_norm_Scalar: OpFunction = (...a) => {
  f__foreach_norm_Scalar = op('_foreach_norm.Scalar')
  return f__foreach_norm_Scalar(...a)
}
let f__foreach_addcmul__Scalar: OpFunction = (...a) => {
  f__foreach_addcmul__Scalar = op('_foreach_addcmul_.Scalar')
  return f__foreach_addcmul__Scalar(...a)
}
let f__foreach_addcdiv__Scalar: OpFunction = (...a) => {
  f__foreach_addcdiv__Scalar = op('_foreach_addcdiv_.Scalar')
  return f__foreach_addcdiv__Scalar(...a)
}
let f__foreach_sqrt: OpFunction = (...a) => {
  f__foreach_sqrt = op('_foreach_sqrt')
  return f__foreach_sqrt(...a)
}
let f__foreach_div__List: OpFunction = (...a) => {
  f__foreach_div__List = op('_foreach_div_.List')
  return f__foreach_div__List(...a)
}
let f__foreach_div__Scalar: OpFunction = (...a) => {
  f__foreach_div__Scalar = op('_foreach_div_.Scalar')
  return f__foreach_div__Scalar(...a)
}

/** Methods of Tensor, one for each op of ops.list that has a `self`. */
export class TensorOps extends Handle {
  abs(): Tensor {
    return f_abs(this) as Tensor
  }
  add(other: Tensor, options?: { alpha?: Scalar }): Tensor
  add(other: Scalar, options?: { alpha?: Scalar }): Tensor
  add(a0?: unknown, a1?: unknown): unknown {
    if (a0 instanceof Handle) return f_add_Tensor(this, a0, a1) as never
    return f_add_Scalar(this, a0, a1) as never
  }
  add_(other: Tensor, options?: { alpha?: Scalar }): Tensor
  add_(other: Scalar, options?: { alpha?: Scalar }): Tensor
  add_(a0?: unknown, a1?: unknown): unknown {
    if (a0 instanceof Handle) return f_add__Tensor(this, a0, a1) as never
    return f_add__Scalar(this, a0, a1) as never
  }
  addcmul_(tensor1: Tensor, tensor2: Tensor, options?: { value?: Scalar }): Tensor {
    return f_addcmul_(this, tensor1, tensor2, options) as Tensor
  }
  all(): Tensor
  all(dim: number, options?: { keepdim?: boolean }): Tensor
  all(a0?: unknown, a1?: unknown): unknown {
    if (typeof a0 === 'number') return f_all_dim(this, a0, a1) as never
    return f_all(this, a0) as never
  }
  amax(options?: { dim?: number | readonly number[]; keepdim?: boolean }): Tensor {
    return f_amax(this, options) as Tensor
  }
  argmax(options?: { dim?: number | null; keepdim?: boolean }): Tensor {
    return f_argmax(this, options) as Tensor
  }
  binaryCrossEntropyWithLogits(
    target: Tensor,
    options?: { weight?: Tensor | null; posWeight?: Tensor | null; reduction?: number },
  ): Tensor {
    return f_binary_cross_entropy_with_logits(this, target, options) as Tensor
  }
  chunk(chunks: number, options?: { dim?: number }): Tensor[] {
    return f_chunk(this, chunks, options) as Tensor[]
  }
  clamp(options?: { min?: Scalar | null; max?: Scalar | null }): Tensor {
    return f_clamp(this, options) as Tensor
  }
  clamp_(options?: { min?: Scalar | null; max?: Scalar | null }): Tensor {
    return f_clamp_(this, options) as Tensor
  }
  clampMax(max: Scalar): Tensor
  clampMax(max: Tensor): Tensor
  clampMax(a0?: unknown): unknown {
    if (a0 instanceof Handle) return f_clamp_max_Tensor(this, a0) as never
    return f_clamp_max(this, a0) as never
  }
  clampMin(min: Scalar): Tensor
  clampMin(min: Tensor): Tensor
  clampMin(a0?: unknown): unknown {
    if (a0 instanceof Handle) return f_clamp_min_Tensor(this, a0) as never
    return f_clamp_min(this, a0) as never
  }
  clone(options?: { memoryFormat?: MemoryFormat | null }): Tensor {
    return f_clone(this, options) as Tensor
  }
  constantPadNd(pad: readonly number[], options?: { value?: Scalar }): Tensor {
    return f_constant_pad_nd(this, pad, options) as Tensor
  }
  contiguous(options?: { memoryFormat?: MemoryFormat }): Tensor {
    return f_contiguous(this, options) as Tensor
  }
  conv2d(
    weight: Tensor,
    options?: {
      bias?: Tensor | null
      stride?: number | readonly number[]
      padding?: number | readonly number[]
      dilation?: number | readonly number[]
      groups?: number
    },
  ): Tensor {
    return f_conv2d(this, weight, options) as Tensor
  }
  convTranspose2d(
    weight: Tensor,
    options?: {
      bias?: Tensor | null
      stride?: number | readonly number[]
      padding?: number | readonly number[]
      outputPadding?: number | readonly number[]
      groups?: number
      dilation?: number | readonly number[]
    },
  ): Tensor {
    return f_conv_transpose2d_input(this, weight, options) as Tensor
  }
  copy_(src: Tensor, options?: { nonBlocking?: boolean }): Tensor {
    return f_copy_(this, src, options) as Tensor
  }
  cos(): Tensor {
    return f_cos(this) as Tensor
  }
  cumsum(dim: number, options?: { dtype?: DType | null }): Tensor {
    return f_cumsum(this, dim, options) as Tensor
  }
  detach(): Tensor {
    return f_detach(this) as Tensor
  }
  div(other: Tensor): Tensor
  div(other: Scalar): Tensor
  div(other: Tensor, options: { roundingMode: string | null }): Tensor
  div(other: Scalar, options: { roundingMode: string | null }): Tensor
  div(a0?: unknown, a1?: unknown): unknown {
    if (a0 instanceof Handle && (a1 as Record<string, unknown> | undefined)?.roundingMode !== undefined)
      return f_div_Tensor_mode(this, a0, a1) as never
    if (
      (typeof a0 === 'number' || typeof a0 === 'boolean' || typeof a0 === 'bigint') &&
      (a1 as Record<string, unknown> | undefined)?.roundingMode !== undefined
    )
      return f_div_Scalar_mode(this, a0, a1) as never
    if (a0 instanceof Handle) return f_div_Tensor(this, a0, a1) as never
    return f_div_Scalar(this, a0, a1) as never
  }
  dropout(p: number, train: boolean): Tensor {
    return f_dropout(this, p, train) as Tensor
  }
  eq(other: Tensor): Tensor
  eq(other: Scalar): Tensor
  eq(a0?: unknown): unknown {
    if (a0 instanceof Handle) return f_eq_Tensor(this, a0) as never
    return f_eq_Scalar(this, a0) as never
  }
  equal(other: Tensor): boolean {
    return f_equal(this, other) as boolean
  }
  exp(): Tensor {
    return f_exp(this) as Tensor
  }
  exp_(): Tensor {
    return f_exp_(this) as Tensor
  }
  expand(size: readonly number[], options?: { implicit?: boolean }): Tensor {
    return f_expand(this, size, options) as Tensor
  }
  expm1(): Tensor {
    return f_expm1(this) as Tensor
  }
  fill_(value: Scalar): Tensor
  fill_(value: Tensor): Tensor
  fill_(a0?: unknown): unknown {
    if (a0 instanceof Handle) return f_fill__Tensor(this, a0) as never
    return f_fill__Scalar(this, a0) as never
  }
  flatten(options?: { startDim?: number; endDim?: number }): Tensor {
    return f_flatten_using_ints(this, options) as Tensor
  }
  flip(dims: readonly number[]): Tensor {
    return f_flip(this, dims) as Tensor
  }
  gather(dim: number, index: Tensor, options?: { sparseGrad?: boolean }): Tensor {
    return f_gather(this, dim, index, options) as Tensor
  }
  ge(other: Tensor): Tensor
  ge(other: Scalar): Tensor
  ge(a0?: unknown): unknown {
    if (a0 instanceof Handle) return f_ge_Tensor(this, a0) as never
    return f_ge_Scalar(this, a0) as never
  }
  gelu(options?: { approximate?: string }): Tensor {
    return f_gelu(this, options) as Tensor
  }
  gt(other: Tensor): Tensor
  gt(other: Scalar): Tensor
  gt(a0?: unknown): unknown {
    if (a0 instanceof Handle) return f_gt_Tensor(this, a0) as never
    return f_gt_Scalar(this, a0) as never
  }
  index(indices: readonly (Tensor | null)[]): Tensor {
    return f_index_Tensor(this, indices) as Tensor
  }
  indexCopy(dim: number, index: Tensor, source: Tensor): Tensor {
    return f_index_copy(this, dim, index, source) as Tensor
  }
  indexCopy_(dim: number, index: Tensor, source: Tensor): Tensor {
    return f_index_copy_(this, dim, index, source) as Tensor
  }
  indexFill(dim: number, index: Tensor, value: Scalar): Tensor {
    return f_index_fill_int_Scalar(this, dim, index, value) as Tensor
  }
  indexSelect(dim: number, index: Tensor): Tensor {
    return f_index_select(this, dim, index) as Tensor
  }
  isfinite(): Tensor {
    return f_isfinite(this) as Tensor
  }
  isnan(): Tensor {
    return f_isnan(this) as Tensor
  }
  layerNorm(
    normalizedShape: readonly number[],
    options?: { weight?: Tensor | null; bias?: Tensor | null; eps?: number; cudnnEnable?: boolean },
  ): Tensor {
    return f_layer_norm(this, normalizedShape, options) as Tensor
  }
  le(other: Tensor): Tensor
  le(other: Scalar): Tensor
  le(a0?: unknown): unknown {
    if (a0 instanceof Handle) return f_le_Tensor(this, a0) as never
    return f_le_Scalar(this, a0) as never
  }
  lerp(end: Tensor, weight: Tensor): Tensor
  lerp(end: Tensor, weight: Scalar): Tensor
  lerp(a0?: unknown, a1?: unknown): unknown {
    if (a0 instanceof Handle && a1 instanceof Handle) return f_lerp_Tensor(this, a0, a1) as never
    return f_lerp_Scalar(this, a0, a1) as never
  }
  lerp_(end: Tensor, weight: Tensor): Tensor
  lerp_(end: Tensor, weight: Scalar): Tensor
  lerp_(a0?: unknown, a1?: unknown): unknown {
    if (a0 instanceof Handle && a1 instanceof Handle) return f_lerp__Tensor(this, a0, a1) as never
    return f_lerp__Scalar(this, a0, a1) as never
  }
  linear(weight: Tensor, options?: { bias?: Tensor | null }): Tensor {
    return f_linear(this, weight, options) as Tensor
  }
  log(): Tensor {
    return f_log(this) as Tensor
  }
  logSoftmax(dim: number, options?: { dtype?: DType | null }): Tensor {
    return f_log_softmax_int(this, dim, options) as Tensor
  }
  logaddexp(other: Tensor): Tensor {
    return f_logaddexp(this, other) as Tensor
  }
  logicalAnd(other: Tensor): Tensor {
    return f_logical_and(this, other) as Tensor
  }
  logicalNot(): Tensor {
    return f_logical_not(this) as Tensor
  }
  logicalOr(other: Tensor): Tensor {
    return f_logical_or(this, other) as Tensor
  }
  logsumexp(dim: number | readonly number[], options?: { keepdim?: boolean }): Tensor {
    return f_logsumexp(this, dim, options) as Tensor
  }
  lt(other: Tensor): Tensor
  lt(other: Scalar): Tensor
  lt(a0?: unknown): unknown {
    if (a0 instanceof Handle) return f_lt_Tensor(this, a0) as never
    return f_lt_Scalar(this, a0) as never
  }
  maskedFill(mask: Tensor, value: Scalar): Tensor
  maskedFill(mask: Tensor, value: Tensor): Tensor
  maskedFill(a0?: unknown, a1?: unknown): unknown {
    if (a0 instanceof Handle && a1 instanceof Handle) return f_masked_fill_Tensor(this, a0, a1) as never
    return f_masked_fill_Scalar(this, a0, a1) as never
  }
  maskedSelect(mask: Tensor): Tensor {
    return f_masked_select(this, mask) as Tensor
  }
  matmul(other: Tensor): Tensor {
    return f_matmul(this, other) as Tensor
  }
  max(): Tensor
  max(dim: number, options?: { keepdim?: boolean }): { values: Tensor; indices: Tensor }
  max(other: Tensor): Tensor
  max(a0?: unknown, a1?: unknown): unknown {
    if (a0 instanceof Handle) return f_max_other(this, a0, a1) as never
    if (typeof a0 === 'number') return f_max_dim(this, a0, a1) as never
    return f_max(this, a0) as never
  }
  maxPool2d(
    kernelSize: number | readonly number[],
    options?: {
      stride?: number | readonly number[]
      padding?: number | readonly number[]
      dilation?: number | readonly number[]
      ceilMode?: boolean
    },
  ): Tensor {
    return f_max_pool2d(this, kernelSize, options) as Tensor
  }
  maximum(other: Tensor): Tensor {
    return f_maximum(this, other) as Tensor
  }
  mean(options?: { dtype?: DType | null }): Tensor
  mean(dim: number | readonly number[] | null, options?: { keepdim?: boolean; dtype?: DType | null }): Tensor
  mean(a0?: unknown, a1?: unknown): unknown {
    if (typeof a0 === 'number' || Array.isArray(a0) || a0 === null) return f_mean_dim(this, a0, a1) as never
    return f_mean(this, a0) as never
  }
  min(): Tensor
  min(dim: number, options?: { keepdim?: boolean }): { values: Tensor; indices: Tensor }
  min(other: Tensor): Tensor
  min(a0?: unknown, a1?: unknown): unknown {
    if (a0 instanceof Handle) return f_min_other(this, a0, a1) as never
    if (typeof a0 === 'number') return f_min_dim(this, a0, a1) as never
    return f_min(this, a0) as never
  }
  minimum(other: Tensor): Tensor {
    return f_minimum(this, other) as Tensor
  }
  mul(other: Tensor): Tensor
  mul(other: Scalar): Tensor
  mul(a0?: unknown): unknown {
    if (a0 instanceof Handle) return f_mul_Tensor(this, a0) as never
    return f_mul_Scalar(this, a0) as never
  }
  mul_(other: Tensor): Tensor
  mul_(other: Scalar): Tensor
  mul_(a0?: unknown): unknown {
    if (a0 instanceof Handle) return f_mul__Tensor(this, a0) as never
    return f_mul__Scalar(this, a0) as never
  }
  nanToNum(options?: { nan?: number | null; posinf?: number | null; neginf?: number | null }): Tensor {
    return f_nan_to_num(this, options) as Tensor
  }
  narrow(dim: number, start: number, length: number): Tensor {
    return f_narrow(this, dim, start, length) as Tensor
  }
  ne(other: Tensor): Tensor
  ne(other: Scalar): Tensor
  ne(a0?: unknown): unknown {
    if (a0 instanceof Handle) return f_ne_Tensor(this, a0) as never
    return f_ne_Scalar(this, a0) as never
  }
  neg(): Tensor {
    return f_neg(this) as Tensor
  }
  nonzero(): Tensor {
    return f_nonzero(this) as Tensor
  }
  norm(p: Scalar | null, dim: number | readonly number[], options?: { keepdim?: boolean }): Tensor
  norm(options?: { p?: Scalar }): Tensor
  norm(a0?: unknown, a1?: unknown, a2?: unknown): unknown {
    if (
      (typeof a0 === 'number' || typeof a0 === 'boolean' || typeof a0 === 'bigint' || a0 === null) &&
      (typeof a1 === 'number' || Array.isArray(a1))
    )
      return f_norm_ScalarOpt_dim(this, a0, a1, a2) as never
    return f_norm_Scalar(this, a0) as never
  }
  normal_(options?: { mean?: number; std?: number; generator?: GeneratorHandle | null }): Tensor {
    return f_normal_(this, options) as Tensor
  }
  onesLike(options?: { dtype?: DType | null; device?: string | null; memoryFormat?: MemoryFormat | null }): Tensor {
    return f_ones_like(this, options) as Tensor
  }
  permute(dims: readonly number[]): Tensor {
    return f_permute(this, dims) as Tensor
  }
  pow(exponent: Tensor): Tensor
  pow(exponent: Scalar): Tensor
  pow(a0?: unknown): unknown {
    if (a0 instanceof Handle) return f_pow_Tensor_Tensor(this, a0) as never
    return f_pow_Tensor_Scalar(this, a0) as never
  }
  quantile(q: number, options?: { dim?: number | null; keepdim?: boolean; interpolation?: string }): Tensor {
    return f_quantile_scalar(this, q, options) as Tensor
  }
  reciprocal(): Tensor {
    return f_reciprocal(this) as Tensor
  }
  relu(): Tensor {
    return f_relu(this) as Tensor
  }
  remainder(other: Tensor): Tensor
  remainder(other: Scalar): Tensor
  remainder(a0?: unknown): unknown {
    if (a0 instanceof Handle) return f_remainder_Tensor(this, a0) as never
    return f_remainder_Scalar(this, a0) as never
  }
  repeat(repeats: readonly number[]): Tensor {
    return f_repeat(this, repeats) as Tensor
  }
  repeatInterleave(repeats: number, options?: { dim?: number | null; outputSize?: number | null }): Tensor
  repeatInterleave(repeats: Tensor, options?: { dim?: number | null; outputSize?: number | null }): Tensor
  repeatInterleave(a0?: unknown, a1?: unknown): unknown {
    if (a0 instanceof Handle) return f_repeat_interleave_self_Tensor(this, a0, a1) as never
    return f_repeat_interleave_self_int(this, a0, a1) as never
  }
  reshape(shape: readonly number[]): Tensor {
    return f_reshape(this, shape) as Tensor
  }
  roll(shifts: number | readonly number[], options?: { dims?: number | readonly number[] }): Tensor {
    return f_roll(this, shifts, options) as Tensor
  }
  round(): Tensor {
    return f_round(this) as Tensor
  }
  rsqrt(): Tensor {
    return f_rsqrt(this) as Tensor
  }
  scatter(dim: number, index: Tensor, src: Tensor): Tensor
  scatter(dim: number, index: Tensor, value: Scalar): Tensor
  scatter(a0?: unknown, a1?: unknown, a2?: unknown): unknown {
    if (typeof a0 === 'number' && a1 instanceof Handle && a2 instanceof Handle)
      return f_scatter_src(this, a0, a1, a2) as never
    return f_scatter_value(this, a0, a1, a2) as never
  }
  scatter_(dim: number, index: Tensor, src: Tensor): Tensor
  scatter_(dim: number, index: Tensor, value: Scalar): Tensor
  scatter_(a0?: unknown, a1?: unknown, a2?: unknown): unknown {
    if (typeof a0 === 'number' && a1 instanceof Handle && a2 instanceof Handle)
      return f_scatter__src(this, a0, a1, a2) as never
    return f_scatter__value(this, a0, a1, a2) as never
  }
  scatterAdd(dim: number, index: Tensor, src: Tensor): Tensor {
    return f_scatter_add(this, dim, index, src) as Tensor
  }
  select(dim: number, index: number): Tensor {
    return f_select_int(this, dim, index) as Tensor
  }
  sigmoid(): Tensor {
    return f_sigmoid(this) as Tensor
  }
  silu(): Tensor {
    return f_silu(this) as Tensor
  }
  sin(): Tensor {
    return f_sin(this) as Tensor
  }
  slice(options?: { dim?: number; start?: number | null; end?: number | null; step?: number }): Tensor {
    return f_slice_Tensor(this, options) as Tensor
  }
  softmax(dim: number, options?: { dtype?: DType | null }): Tensor {
    return f_softmax_int(this, dim, options) as Tensor
  }
  sort(options: { stable: boolean | null; dim?: number; descending?: boolean }): { values: Tensor; indices: Tensor }
  sort(options?: { dim?: number; descending?: boolean }): { values: Tensor; indices: Tensor }
  sort(a0?: unknown): unknown {
    if ((a0 as Record<string, unknown> | undefined)?.stable !== undefined) return f_sort_stable(this, a0) as never
    return f_sort(this, a0) as never
  }
  split(splitSize: number, options?: { dim?: number }): Tensor[]
  split(splitSize: readonly number[], options?: { dim?: number }): Tensor[]
  split(a0?: unknown, a1?: unknown): unknown {
    if (typeof a0 === 'number') return f_split_Tensor(this, a0, a1) as never
    return f_split_sizes(this, a0, a1) as never
  }
  sqrt(): Tensor {
    return f_sqrt(this) as Tensor
  }
  square(): Tensor {
    return f_square(this) as Tensor
  }
  squeeze(): Tensor
  squeeze(dim: number): Tensor
  squeeze(a0?: unknown): unknown {
    if (typeof a0 === 'number') return f_squeeze_dim(this, a0) as never
    return f_squeeze(this, a0) as never
  }
  std(dim: number | readonly number[] | null, options: { correction: number | null; keepdim?: boolean }): Tensor {
    return f_std_correction(this, dim, options) as Tensor
  }
  sub(other: Tensor, options?: { alpha?: Scalar }): Tensor
  sub(other: Scalar, options?: { alpha?: Scalar }): Tensor
  sub(a0?: unknown, a1?: unknown): unknown {
    if (a0 instanceof Handle) return f_sub_Tensor(this, a0, a1) as never
    return f_sub_Scalar(this, a0, a1) as never
  }
  sum(options?: { dtype?: DType | null }): Tensor
  sum(dim: number | readonly number[] | null, options?: { keepdim?: boolean; dtype?: DType | null }): Tensor
  sum(a0?: unknown, a1?: unknown): unknown {
    if (typeof a0 === 'number' || Array.isArray(a0) || a0 === null) return f_sum_dim_IntList(this, a0, a1) as never
    return f_sum(this, a0) as never
  }
  t(): Tensor {
    return f_t(this) as Tensor
  }
  tanh(): Tensor {
    return f_tanh(this) as Tensor
  }
  to(dtype: DType, options?: { nonBlocking?: boolean; copy?: boolean; memoryFormat?: MemoryFormat | null }): Tensor {
    return f_to_dtype(this, dtype, options) as Tensor
  }
  topk(
    k: number,
    options?: { dim?: number; largest?: boolean; sorted?: boolean },
  ): { values: Tensor; indices: Tensor } {
    return f_topk(this, k, options) as { values: Tensor; indices: Tensor }
  }
  transpose(dim0: number, dim1: number): Tensor {
    return f_transpose_int(this, dim0, dim1) as Tensor
  }
  tril(options?: { diagonal?: number }): Tensor {
    return f_tril(this, options) as Tensor
  }
  unbind(options?: { dim?: number }): Tensor[] {
    return f_unbind_int(this, options) as Tensor[]
  }
  unsqueeze(dim: number): Tensor {
    return f_unsqueeze(this, dim) as Tensor
  }
  upsampleBicubic2d(
    outputSize: number | readonly number[],
    alignCorners: boolean,
    options?: { scalesH?: number | null; scalesW?: number | null },
  ): Tensor {
    return f_upsample_bicubic2d(this, outputSize, alignCorners, options) as Tensor
  }
  upsampleBilinear2d(
    outputSize: number | readonly number[],
    alignCorners: boolean,
    options?: { scalesH?: number | null; scalesW?: number | null },
  ): Tensor {
    return f_upsample_bilinear2d(this, outputSize, alignCorners, options) as Tensor
  }
  upsampleNearest2d(
    outputSize: number | readonly number[],
    options?: { scalesH?: number | null; scalesW?: number | null },
  ): Tensor {
    return f_upsample_nearest2d(this, outputSize, options) as Tensor
  }
  _upsampleBilinear2dAa(
    outputSize: number | readonly number[],
    alignCorners: boolean,
    options?: { scalesH?: number | null; scalesW?: number | null },
  ): Tensor {
    return f__upsample_bilinear2d_aa(this, outputSize, alignCorners, options) as Tensor
  }
  view(size: readonly number[]): Tensor {
    return f_view(this, size) as Tensor
  }
  zero_(): Tensor {
    return f_zero_(this) as Tensor
  }
}

export function arange(
  start: Scalar,
  end: Scalar,
  options?: { step?: Scalar; dtype?: DType | null; device?: string | null },
): Tensor
export function arange(start: Scalar, end: Scalar, options?: { dtype?: DType | null; device?: string | null }): Tensor
export function arange(end: Scalar, options?: { dtype?: DType | null; device?: string | null }): Tensor
export function arange(a0?: unknown, a1?: unknown, a2?: unknown): unknown {
  if (
    (typeof a0 === 'number' || typeof a0 === 'boolean' || typeof a0 === 'bigint') &&
    (typeof a1 === 'number' || typeof a1 === 'boolean' || typeof a1 === 'bigint')
  )
    return f_arange_start_step(a0, a1, a2) as never
  if (
    (typeof a0 === 'number' || typeof a0 === 'boolean' || typeof a0 === 'bigint') &&
    (typeof a1 === 'number' || typeof a1 === 'boolean' || typeof a1 === 'bigint')
  )
    return f_arange_start(a0, a1, a2) as never
  return f_arange(a0, a1) as never
}
export function cat(tensors: readonly Tensor[], options?: { dim?: number }): Tensor {
  return f_cat(tensors, options) as Tensor
}
export function embedding(
  weight: Tensor,
  indices: Tensor,
  options?: { paddingIdx?: number; scaleGradByFreq?: boolean; sparse?: boolean },
): Tensor {
  return f_embedding(weight, indices, options) as Tensor
}
export function empty(
  size: readonly number[],
  options?: { dtype?: DType | null; device?: string | null; memoryFormat?: MemoryFormat | null },
): Tensor {
  return f_empty_memory_format(size, options) as Tensor
}
export function full(
  size: readonly number[],
  fillValue: Scalar,
  options?: { dtype?: DType | null; device?: string | null },
): Tensor {
  return f_full(size, fillValue, options) as Tensor
}
export function ones(size: readonly number[], options?: { dtype?: DType | null; device?: string | null }): Tensor {
  return f_ones(size, options) as Tensor
}
export function randn(
  size: readonly number[],
  options: { generator: GeneratorHandle | null; dtype?: DType | null; device?: string | null },
): Tensor
export function randn(size: readonly number[], options?: { dtype?: DType | null; device?: string | null }): Tensor
export function randn(a0?: unknown, a1?: unknown): unknown {
  if (Array.isArray(a0) && (a1 as Record<string, unknown> | undefined)?.generator !== undefined)
    return f_randn_generator(a0, a1) as never
  return f_randn(a0, a1) as never
}
export function searchsorted(
  sortedSequence: Tensor,
  self: Tensor,
  options?: { outInt32?: boolean; right?: boolean; side?: string | null; sorter?: Tensor | null },
): Tensor {
  return f_searchsorted_Tensor(sortedSequence, self, options) as Tensor
}
export function stack(tensors: readonly Tensor[], options?: { dim?: number }): Tensor {
  return f_stack(tensors, options) as Tensor
}
export function where(condition: Tensor, self: Tensor, other: Tensor): Tensor
export function where(condition: Tensor, self: Scalar, other: Tensor): Tensor
export function where(condition: Tensor, self: Tensor, other: Scalar): Tensor
export function where(condition: Tensor, self: Scalar, other: Scalar): Tensor
export function where(condition: Tensor): Tensor[]
export function where(a0?: unknown, a1?: unknown, a2?: unknown): unknown {
  if (a0 instanceof Handle && a1 instanceof Handle && a2 instanceof Handle) return f_where_self(a0, a1, a2) as never
  if (
    a0 instanceof Handle &&
    (typeof a1 === 'number' || typeof a1 === 'boolean' || typeof a1 === 'bigint') &&
    a2 instanceof Handle
  )
    return f_where_ScalarSelf(a0, a1, a2) as never
  if (
    a0 instanceof Handle &&
    a1 instanceof Handle &&
    (typeof a2 === 'number' || typeof a2 === 'boolean' || typeof a2 === 'bigint')
  )
    return f_where_ScalarOther(a0, a1, a2) as never
  if (
    a0 instanceof Handle &&
    (typeof a1 === 'number' || typeof a1 === 'boolean' || typeof a1 === 'bigint') &&
    (typeof a2 === 'number' || typeof a2 === 'boolean' || typeof a2 === 'bigint')
  )
    return f_where_Scalar(a0, a1, a2) as never
  return f_where(a0, a1) as never
}
export function zeros(size: readonly number[], options?: { dtype?: DType | null; device?: string | null }): Tensor {
  return f_zeros(size, options) as Tensor
}
export function _foreachAdd_(self: readonly Tensor[], other: readonly Tensor[], options?: { alpha?: Scalar }): void
export function _foreachAdd_(self: readonly Tensor[], scalar: Scalar): void
export function _foreachAdd_(a0?: unknown, a1?: unknown, a2?: unknown): unknown {
  if (Array.isArray(a0) && a0[0] instanceof Handle && Array.isArray(a1) && a1[0] instanceof Handle)
    return f__foreach_add__List(a0, a1, a2) as never
  return f__foreach_add__Scalar(a0, a1, a2) as never
}
export function _foreachMul(self: readonly Tensor[], scalar: Scalar): Tensor[] {
  return f__foreach_mul_Scalar(self, scalar) as Tensor[]
}
export function _foreachMul_(self: readonly Tensor[], scalar: Scalar): void
export function _foreachMul_(self: readonly Tensor[], other: readonly Tensor[]): void
export function _foreachMul_(a0?: unknown, a1?: unknown): unknown {
  if (
    Array.isArray(a0) &&
    a0[0] instanceof Handle &&
    (typeof a1 === 'number' || typeof a1 === 'boolean' || typeof a1 === 'bigint')
  )
    return f__foreach_mul__Scalar(a0, a1) as never
  return f__foreach_mul__List(a0, a1) as never
}
export function _foreachNorm(self: readonly Tensor[], options?: { ord?: Scalar }): Tensor[] {
  return f__foreach_norm_Scalar(self, options) as Tensor[]
}
export function _foreachAddcmul_(
  self: readonly Tensor[],
  tensor1: readonly Tensor[],
  tensor2: readonly Tensor[],
  options?: { value?: Scalar },
): void {
  f__foreach_addcmul__Scalar(self, tensor1, tensor2, options)
}
export function _foreachAddcdiv_(
  self: readonly Tensor[],
  tensor1: readonly Tensor[],
  tensor2: readonly Tensor[],
  options?: { value?: Scalar },
): void {
  f__foreach_addcdiv__Scalar(self, tensor1, tensor2, options)
}
export function _foreachSqrt(self: readonly Tensor[]): Tensor[] {
  return f__foreach_sqrt(self) as Tensor[]
}
export function _foreachDiv_(self: readonly Tensor[], other: readonly Tensor[]): void
export function _foreachDiv_(self: readonly Tensor[], scalar: Scalar): void
export function _foreachDiv_(a0?: unknown, a1?: unknown): unknown {
  if (Array.isArray(a0) && a0[0] instanceof Handle && Array.isArray(a1) && a1[0] instanceof Handle)
    return f__foreach_div__List(a0, a1) as never
  return f__foreach_div__Scalar(a0, a1) as never
}
