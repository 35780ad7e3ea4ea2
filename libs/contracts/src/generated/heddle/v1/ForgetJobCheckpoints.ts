// Original file: proto/parameters.proto


export interface ForgetJobCheckpoints {
  'jobId'?: (string);
}

export interface ForgetJobCheckpoints__Output {
  'jobId': (string);
}
