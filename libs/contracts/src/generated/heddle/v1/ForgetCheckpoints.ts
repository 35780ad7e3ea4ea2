// Original file: proto/tasks.proto


export interface ForgetCheckpoints {
  'jobIds'?: (string)[];
  'emptyJobIds'?: (string)[];
  'unknownJobIds'?: (string)[];
}

export interface ForgetCheckpoints__Output {
  'jobIds': (string)[];
  'emptyJobIds': (string)[];
  'unknownJobIds': (string)[];
}
