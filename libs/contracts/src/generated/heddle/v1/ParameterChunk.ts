// Original file: proto/parameters.proto

import type { Long } from '@grpc/proto-loader';

export interface ParameterChunk {
  'version'?: (number | string | Long);
  'offset'?: (number | string | Long);
  'data'?: (Buffer | Uint8Array | string);
  'totalBytes'?: (number | string | Long);
}

export interface ParameterChunk__Output {
  'version': (number);
  'offset': (number);
  'data': (Buffer);
  'totalBytes': (number);
}
