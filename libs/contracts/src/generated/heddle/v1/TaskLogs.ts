// Original file: proto/tasks.proto

import type { MethodDefinition } from '@grpc/proto-loader'
import type { LogAck as _heddle_v1_LogAck, LogAck__Output as _heddle_v1_LogAck__Output } from '../../heddle/v1/LogAck.ts';
import type { LogChunk as _heddle_v1_LogChunk, LogChunk__Output as _heddle_v1_LogChunk__Output } from '../../heddle/v1/LogChunk.ts';
import type { LogRange as _heddle_v1_LogRange, LogRange__Output as _heddle_v1_LogRange__Output } from '../../heddle/v1/LogRange.ts';

export interface TaskLogsDefinition {
  Read: MethodDefinition<_heddle_v1_LogRange, _heddle_v1_LogChunk, _heddle_v1_LogRange__Output, _heddle_v1_LogChunk__Output>
  Ship: MethodDefinition<_heddle_v1_LogChunk, _heddle_v1_LogAck, _heddle_v1_LogChunk__Output, _heddle_v1_LogAck__Output>
}
