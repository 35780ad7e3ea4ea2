// Original file: proto/parameters.proto

import type { ShardId as _heddle_v1_ShardId, ShardId__Output as _heddle_v1_ShardId__Output } from '../../heddle/v1/ShardId.ts';
import type { Long } from '@grpc/proto-loader';

export interface ShardStatus {
  'id'?: (_heddle_v1_ShardId | null);
  'version'?: (number | string | Long);
  'elements'?: (number | string | Long);
  'pushes'?: (number | string | Long);
  'refusedStale'?: (number | string | Long);
  'refusedInvalid'?: (number | string | Long);
  'stragglers'?: (number | string | Long);
  'bytesPushed'?: (number | string | Long);
  'bytesPulled'?: (number | string | Long);
  'dataAddress'?: (string);
  'dataSocket'?: (string);
  'refusedUnauthenticated'?: (number | string | Long);
  'ready'?: (boolean);
  'dataPath'?: (string);
  'begunVersion'?: (number | string | Long);
  'workers'?: (number);
  'departures'?: (number);
}

export interface ShardStatus__Output {
  'id': (_heddle_v1_ShardId__Output | null);
  'version': (number);
  'elements': (number);
  'pushes': (number);
  'refusedStale': (number);
  'refusedInvalid': (number);
  'stragglers': (number);
  'bytesPushed': (number);
  'bytesPulled': (number);
  'dataAddress': (string);
  'dataSocket': (string);
  'refusedUnauthenticated': (number);
  'ready': (boolean);
  'dataPath': (string);
  'begunVersion': (number);
  'workers': (number);
  'departures': (number);
}
