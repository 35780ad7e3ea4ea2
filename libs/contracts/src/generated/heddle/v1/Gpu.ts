// Original file: proto/cluster.proto

import type { Long } from '@grpc/proto-loader';

export interface Gpu {
  'index'?: (number);
  'uuid'?: (string);
  'name'?: (string);
  'memoryBytes'?: (number | string | Long);
  'memoryUsedBytes'?: (number | string | Long);
  'utilizationPercent'?: (number | string);
  'temperatureCelsius'?: (number | string);
  'powerWatts'?: (number | string);
  'simulated'?: (boolean);
  'fault'?: (string);
}

export interface Gpu__Output {
  'index': (number);
  'uuid': (string);
  'name': (string);
  'memoryBytes': (number);
  'memoryUsedBytes': (number);
  'utilizationPercent': (number);
  'temperatureCelsius': (number);
  'powerWatts': (number);
  'simulated': (boolean);
  'fault': (string);
}
