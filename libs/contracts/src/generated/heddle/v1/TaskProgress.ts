// Original file: proto/tasks.proto

import type { Long } from '@grpc/proto-loader';

export interface TaskProgress {
  'line'?: (string);
  'atUnixMs'?: (number | string | Long);
  'checkpoint'?: (string);
  'checkpointUnixMs'?: (number | string | Long);
  'checkpointStep'?: (number | string);
  'checkpointBytes'?: (number | string | Long);
  '_checkpointStep'?: "checkpointStep";
}

export interface TaskProgress__Output {
  'line': (string);
  'atUnixMs': (number);
  'checkpoint': (string);
  'checkpointUnixMs': (number);
  'checkpointStep'?: (number);
  'checkpointBytes': (number);
  '_checkpointStep'?: "checkpointStep";
}
