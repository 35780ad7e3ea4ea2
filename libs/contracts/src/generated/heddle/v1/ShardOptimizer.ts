// Original file: proto/parameters.proto


export interface ShardOptimizer {
  'kind'?: (string);
  'momentum'?: (number | string);
  'nesterov'?: (boolean);
  'beta1'?: (number | string);
  'beta2'?: (number | string);
  'epsilon'?: (number | string);
  'weightDecay'?: (number | string);
  'maxGradientNorm'?: (number | string);
  'learningRate'?: (number | string);
}

export interface ShardOptimizer__Output {
  'kind': (string);
  'momentum': (number);
  'nesterov': (boolean);
  'beta1': (number);
  'beta2': (number);
  'epsilon': (number);
  'weightDecay': (number);
  'maxGradientNorm': (number);
  'learningRate': (number);
}
