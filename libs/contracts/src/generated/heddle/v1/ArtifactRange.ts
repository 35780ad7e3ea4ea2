// Original file: proto/tasks.proto

import type { TaskId as _heddle_v1_TaskId, TaskId__Output as _heddle_v1_TaskId__Output } from '../../heddle/v1/TaskId.ts';
import type { Long } from '@grpc/proto-loader';

export interface ArtifactRange {
  'task'?: (_heddle_v1_TaskId | null);
  'name'?: (string);
  'offset'?: (number | string | Long);
  'maxBytes'?: (number | string | Long);
  'digests'?: (boolean);
}

export interface ArtifactRange__Output {
  'task': (_heddle_v1_TaskId__Output | null);
  'name': (string);
  'offset': (number);
  'maxBytes': (number);
  'digests': (boolean);
}
