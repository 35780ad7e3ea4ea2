// Original file: proto/tasks.proto

import type { TaskId as _heddle_v1_TaskId, TaskId__Output as _heddle_v1_TaskId__Output } from '../../heddle/v1/TaskId.ts';

export interface StartTask {
  'task'?: (_heddle_v1_TaskId | null);
  'peers'?: (string)[];
  'parameterServers'?: (string)[];
  'nodes'?: (string)[];
  'jobToken'?: (Buffer | Uint8Array | string);
  'readyServers'?: (string)[];
  'ticket'?: (string);
  'secretVariables'?: ({[key: string]: string});
  'lostServers'?: (string)[];
}

export interface StartTask__Output {
  'task': (_heddle_v1_TaskId__Output | null);
  'peers': (string)[];
  'parameterServers': (string)[];
  'nodes': (string)[];
  'jobToken': (Buffer);
  'readyServers': (string)[];
  'ticket': (string);
  'secretVariables': ({[key: string]: string});
  'lostServers': (string)[];
}
