// Original file: proto/parameters.proto

import type { Long } from '@grpc/proto-loader';

export interface TensorShape {
  'name'?: (string);
  'shape'?: (number | string | Long)[];
}

export interface TensorShape__Output {
  'name': (string);
  'shape': (number)[];
}
