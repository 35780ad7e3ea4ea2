// Original file: proto/tasks.proto

import type { LogFile as _heddle_v1_LogFile, LogFile__Output as _heddle_v1_LogFile__Output } from '../../heddle/v1/LogFile.ts';
import type { LogLineTime as _heddle_v1_LogLineTime, LogLineTime__Output as _heddle_v1_LogLineTime__Output } from '../../heddle/v1/LogLineTime.ts';
import type { Long } from '@grpc/proto-loader';

export interface LogChunk {
  'file'?: (_heddle_v1_LogFile | null);
  'offset'?: (number | string | Long);
  'data'?: (Buffer | Uint8Array | string);
  'times'?: (_heddle_v1_LogLineTime)[];
  'complete'?: (boolean);
  'first'?: (number | string | Long);
  'nodeId'?: (string);
  'grant'?: (string);
}

export interface LogChunk__Output {
  'file': (_heddle_v1_LogFile__Output | null);
  'offset': (number);
  'data': (Buffer);
  'times': (_heddle_v1_LogLineTime__Output)[];
  'complete': (boolean);
  'first': (number);
  'nodeId': (string);
  'grant': (string);
}
