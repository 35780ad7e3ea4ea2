// Original file: proto/divisions.proto

import type { DivisionNote as _heddle_v1_DivisionNote, DivisionNote__Output as _heddle_v1_DivisionNote__Output } from '../../heddle/v1/DivisionNote.ts';

export interface DivisionNotes {
  'notes'?: (_heddle_v1_DivisionNote)[];
}

export interface DivisionNotes__Output {
  'notes': (_heddle_v1_DivisionNote__Output)[];
}
