/**
 * Splits output of git whose records end with NUL while it arrives, because a server decides how
 * long the output is.
 */
import { StringDecoder } from 'node:string_decoder';

export type RecordLimits = {
  records: number;
  bytes: number /** Characters; a longer record is left out. */;
  length: number;
};

/**
 * Returns a function that takes output. It calls `onRecord` for each complete record, and returns
 * false when a limit is reached.
 */
export function recordReader(
  { records, bytes, length }: RecordLimits,
  onRecord: (record: string) => void,
): (chunk: Buffer) => boolean {
  const decoder = new StringDecoder('utf8');
  const allowance = { records, bytes };
  let open = '';
  let isTooLong = false;
  const add = (text: string): void => {
    isTooLong ||= open.length + text.length > length;
    open = isTooLong ? '' : open + text;
  };
  return (chunk) => {
    const text = decoder.write(chunk.subarray(0, allowance.bytes));
    allowance.bytes -= chunk.length;
    let from = 0;
    for (
      let to = text.indexOf('\0');
      to !== -1 && allowance.records > 0;
      to = text.indexOf('\0', from)
    ) {
      add(text.slice(from, to));
      if (!isTooLong) onRecord(open);
      allowance.records -= 1;
      open = '';
      isTooLong = false;
      from = to + 1;
    }
    add(text.slice(from));
    return allowance.records > 0 && allowance.bytes > 0;
  };
}
