// Original file: proto/tasks.proto

import type { Long } from '@grpc/proto-loader';

export interface TaskExit {
  'exitCode'?: (number);
  'signal'?: (string);
  'reason'?: (string);
  'message'?: (string);
  'lastLines'?: (string)[];
  'endedUnixMs'?: (number | string | Long);
  'asked'?: (boolean);
  'sickDevices'?: (number)[];
  '_exitCode'?: "exitCode";
}

export interface TaskExit__Output {
  'exitCode'?: (number);
  'signal': (string);
  'reason': (string);
  'message': (string);
  'lastLines': (string)[];
  'endedUnixMs': (number);
  'asked': (boolean);
  'sickDevices': (number)[];
  '_exitCode'?: "exitCode";
}
