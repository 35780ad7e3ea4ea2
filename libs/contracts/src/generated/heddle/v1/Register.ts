// Original file: proto/cluster.proto

import type { NodeKind as _heddle_v1_NodeKind, NodeKind__Output as _heddle_v1_NodeKind__Output } from '../../heddle/v1/NodeKind.ts';
import type { Hardware as _heddle_v1_Hardware, Hardware__Output as _heddle_v1_Hardware__Output } from '../../heddle/v1/Hardware.ts';

export interface Register {
  'nodeId'?: (string);
  'incarnation'?: (string);
  'kind'?: (_heddle_v1_NodeKind);
  'name'?: (string);
  'address'?: (string);
  'version'?: (string);
  'hardware'?: (_heddle_v1_Hardware | null);
  'labels'?: ({[key: string]: string});
  'taints'?: (string)[];
  'rack'?: (string);
  'fabric'?: (string);
  'executors'?: (string)[];
  'algorithms'?: (string)[];
  'environments'?: (string)[];
  'algorithmSchemas'?: ({[key: string]: string});
  'taskIsolation'?: (string);
  'maxTasks'?: (number);
  'maxTasksChosen'?: (boolean);
  'engineFeatures'?: (string)[];
}

export interface Register__Output {
  'nodeId': (string);
  'incarnation': (string);
  'kind': (_heddle_v1_NodeKind__Output);
  'name': (string);
  'address': (string);
  'version': (string);
  'hardware': (_heddle_v1_Hardware__Output | null);
  'labels': ({[key: string]: string});
  'taints': (string)[];
  'rack': (string);
  'fabric': (string);
  'executors': (string)[];
  'algorithms': (string)[];
  'environments': (string)[];
  'algorithmSchemas': ({[key: string]: string});
  'taskIsolation': (string);
  'maxTasks': (number);
  'maxTasksChosen': (boolean);
  'engineFeatures': (string)[];
}
