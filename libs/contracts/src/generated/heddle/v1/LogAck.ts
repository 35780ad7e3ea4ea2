// Original file: proto/tasks.proto

import type { LogFile as _heddle_v1_LogFile, LogFile__Output as _heddle_v1_LogFile__Output } from '../../heddle/v1/LogFile.ts';
import type { Long } from '@grpc/proto-loader';

export interface LogAck {
  'file'?: (_heddle_v1_LogFile | null);
  'durable'?: (number | string | Long);
  'fenced'?: (boolean);
  'complete'?: (boolean);
}

export interface LogAck__Output {
  'file': (_heddle_v1_LogFile__Output | null);
  'durable': (number);
  'fenced': (boolean);
  'complete': (boolean);
}
