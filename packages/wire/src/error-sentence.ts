/**
 * Shortens the message of a failure to one sentence for lists. The message can contain program
 * output below its first line.
 */

const MOST = 220;
/**
 * Matches a line that names the error, from Node.js, Python, Java, Go, Rust, npm, a compiler or a
 * shell.
 */
const NAMES_ERROR = new RegExp(
  String.raw`(?:^|\s)(?:[\w.]*(?:Error|Exception)|error(?:\[\w+\])?|error TS\d+|fatal|panic` +
    String.raw`|npm (?:error|ERR!))(?=[:\s([])`,
  'i',
);
/**
 * Matches a line without a message: a stack frame, a marker below a line of code, an empty line, a
 * `throw`.
 */
const IS_PLACE = /^\s*(?:at\s|File "|\^|~|\|)|^\s*$|^\s*throw\s/;

const cut = (text: string): string => (text.length > MOST ? `${text.slice(0, MOST - 1)}…` : text);

/**
 * Splits the first line: `[3/5] RUN npm test: exit code 1` gives “RUN npm test failed” and “ with
 * exit code 1”.
 */
function headOf(line: string): { head: string; rest: string } {
  const step = /^(?:\[[^\]]*\] )?(.+): exit code (\d+)$/.exec(line);
  return step === null
    ? { head: line.replace(/[:.]$/, ''), rest: '' }
    : { head: `${step[1] ?? ''} failed`, rest: ` with exit code ${step[2] ?? ''}` };
}

export function errorSentence(message: string): string {
  const [first = '', ...more] = message.trim().split(/\r?\n/);
  if (more.every((line) => line.trim() === '')) {
    const { head, rest } = headOf(first.trim());
    return cut(rest === '' ? first.trim() : `${head}${rest}`);
  }
  const lines = more.filter((line) => !IS_PLACE.test(line));
  // A Python traceback ends with its error; other stack traces begin with it.
  const errorLine = more.some((line) => line.startsWith('Traceback'))
    ? lines.findLast((line) => NAMES_ERROR.test(line))
    : lines.find((line) => NAMES_ERROR.test(line));
  const { head, rest } = headOf(first.trim());
  const cause = (errorLine ?? lines.at(-1) ?? '')
    .trim()
    .replace(/^(?:Error|ERROR|error|fatal|npm (?:error|ERR!)): */, '');
  return cut(cause === '' ? `${head}${rest}` : `${head}: ${cause}`);
}
