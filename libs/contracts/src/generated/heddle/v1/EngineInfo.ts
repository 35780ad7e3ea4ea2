// Original file: proto/cluster.proto

import type { Long } from '@grpc/proto-loader';

export interface EngineInfo {
  'engine'?: (string);
  'device'?: (string);
  'contextTokens'?: (number);
  'vocabularySize'?: (number);
  'parameters'?: (number | string | Long);
  'fileType'?: (string);
  'reasoning'?: (string);
  'chatTemplate'?: (string);
  'ranks'?: (boolean);
}

export interface EngineInfo__Output {
  'engine': (string);
  'device': (string);
  'contextTokens': (number);
  'vocabularySize': (number);
  'parameters': (number);
  'fileType': (string);
  'reasoning': (string);
  'chatTemplate': (string);
  'ranks': (boolean);
}
