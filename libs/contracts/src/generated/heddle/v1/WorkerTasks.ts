// Original file: proto/tasks.proto

import type { MethodDefinition } from '@grpc/proto-loader'
import type { TaskCommand as _heddle_v1_TaskCommand, TaskCommand__Output as _heddle_v1_TaskCommand__Output } from '../../heddle/v1/TaskCommand.ts';
import type { TaskReport as _heddle_v1_TaskReport, TaskReport__Output as _heddle_v1_TaskReport__Output } from '../../heddle/v1/TaskReport.ts';

export interface WorkerTasksDefinition {
  Session: MethodDefinition<_heddle_v1_TaskCommand, _heddle_v1_TaskReport, _heddle_v1_TaskCommand__Output, _heddle_v1_TaskReport__Output>
}
