// Original file: proto/tasks.proto

import type { Artifact as _heddle_v1_Artifact, Artifact__Output as _heddle_v1_Artifact__Output } from '../../heddle/v1/Artifact.ts';
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
  'artifacts'?: (_heddle_v1_Artifact)[];
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
  'artifacts': (_heddle_v1_Artifact__Output)[];
  '_exitCode'?: "exitCode";
}
