// Original file: proto/divisions.proto


export interface DivisionNote {
  'deployment'?: (string);
  'misfit'?: (string);
  'undivided'?: (string);
}

export interface DivisionNote__Output {
  'deployment': (string);
  'misfit': (string);
  'undivided': (string);
}
