// Original file: proto/tasks.proto

import type { TaskInput as _heddle_v1_TaskInput, TaskInput__Output as _heddle_v1_TaskInput__Output } from '../../heddle/v1/TaskInput.ts';
import type { Long } from '@grpc/proto-loader';

export interface TaskSpec {
  'jobName'?: (string);
  'project'?: (string);
  'executor'?: (string);
  'containerImage'?: (string);
  'command'?: (string)[];
  'workingDirectory'?: (string);
  'environment'?: ({[key: string]: string});
  'algorithm'?: (string);
  'config'?: (string);
  'tasks'?: (number);
  'cpuMilli'?: (number);
  'memoryBytes'?: (number | string | Long);
  'diskBytes'?: (number | string | Long);
  'maxRuntimeMs'?: (number | string | Long);
  'graceMs'?: (number);
  'checkpointIntervalMs'?: (number);
  'keepCheckpoints'?: (number);
  'checkpointSignal'?: (string);
  'hangTimeoutMs'?: (number);
  'progressIntervalMs'?: (number);
  'resumeFrom'?: (string);
  'failureTolerance'?: (number);
  'hostNetwork'?: (boolean);
  'readOnly'?: (boolean);
  'shmBytes'?: (number | string | Long);
  'profile'?: (string);
  'inputs'?: (_heddle_v1_TaskInput)[];
  'when'?: (string);
  'queue'?: (string);
}

export interface TaskSpec__Output {
  'jobName': (string);
  'project': (string);
  'executor': (string);
  'containerImage': (string);
  'command': (string)[];
  'workingDirectory': (string);
  'environment': ({[key: string]: string});
  'algorithm': (string);
  'config': (string);
  'tasks': (number);
  'cpuMilli': (number);
  'memoryBytes': (number);
  'diskBytes': (number);
  'maxRuntimeMs': (number);
  'graceMs': (number);
  'checkpointIntervalMs': (number);
  'keepCheckpoints': (number);
  'checkpointSignal': (string);
  'hangTimeoutMs': (number);
  'progressIntervalMs': (number);
  'resumeFrom': (string);
  'failureTolerance': (number);
  'hostNetwork': (boolean);
  'readOnly': (boolean);
  'shmBytes': (number);
  'profile': (string);
  'inputs': (_heddle_v1_TaskInput__Output)[];
  'when': (string);
  'queue': (string);
}
