// Original file: proto/tasks.proto

import type { LogFile as _heddle_v1_LogFile, LogFile__Output as _heddle_v1_LogFile__Output } from '../../heddle/v1/LogFile.ts';
import type { Long } from '@grpc/proto-loader';

export interface LogRange {
  'file'?: (_heddle_v1_LogFile | null);
  'offset'?: (number | string | Long);
  'maxBytes'?: (number | string | Long);
}

export interface LogRange__Output {
  'file': (_heddle_v1_LogFile__Output | null);
  'offset': (number);
  'maxBytes': (number);
}
