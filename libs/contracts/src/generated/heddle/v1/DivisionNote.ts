// Original file: proto/divisions.proto

import type { Long } from '@grpc/proto-loader';

export interface DivisionNote {
  'deployment'?: (string);
  'misfit'?: (string);
  'undivided'?: (string);
  'wholeBytes'?: (number | string | Long);
}

export interface DivisionNote__Output {
  'deployment': (string);
  'misfit': (string);
  'undivided': (string);
  'wholeBytes': (number);
}
