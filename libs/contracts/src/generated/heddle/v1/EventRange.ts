// Original file: proto/events.proto

import type { Long } from '@grpc/proto-loader';

export interface EventRange {
  'origin'?: (string);
  'first'?: (number | string | Long);
  'limit'?: (number);
}

export interface EventRange__Output {
  'origin': (string);
  'first': (number);
  'limit': (number);
}
