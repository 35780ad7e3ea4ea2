// Original file: proto/cluster.proto

import type { Long } from '@grpc/proto-loader';

export interface StageLoad {
  'steps'?: (number | string | Long);
  'busyMs'?: (number | string | Long);
  'idleMs'?: (number | string | Long);
  'hops'?: (number | string | Long);
  'hopMicros'?: (number | string | Long);
}

export interface StageLoad__Output {
  'steps': (number);
  'busyMs': (number);
  'idleMs': (number);
  'hops': (number);
  'hopMicros': (number);
}
