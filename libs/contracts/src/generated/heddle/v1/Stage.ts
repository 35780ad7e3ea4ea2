// Original file: proto/worker.proto

import type { StagePeer as _heddle_v1_StagePeer, StagePeer__Output as _heddle_v1_StagePeer__Output } from '../../heddle/v1/StagePeer.ts';
import type { Long } from '@grpc/proto-loader';

export interface Stage {
  'from'?: (number);
  'to'?: (number);
  'driver'?: (string);
  'peers'?: (_heddle_v1_StagePeer)[];
  'memoryBytes'?: (number | string | Long);
  'contextTokens'?: (number);
  'kvTokens'?: (number);
  'maxSequences'?: (number);
  'index'?: (string);
}

export interface Stage__Output {
  'from': (number);
  'to': (number);
  'driver': (string);
  'peers': (_heddle_v1_StagePeer__Output)[];
  'memoryBytes': (number);
  'contextTokens': (number);
  'kvTokens': (number);
  'maxSequences': (number);
  'index': (string);
}
