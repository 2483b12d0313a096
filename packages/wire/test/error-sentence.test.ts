import { expect, test } from 'vitest';
import { errorSentence } from '../src/error-sentence.ts';

test.each([
  [
    'one line stays',
    'The image could not be pushed: no such host',
    'The image could not be pushed: no such host',
  ],
  ['a step without output', '[3/3] RUN false: exit code 1', 'RUN false failed with exit code 1'],
  [
    'node',
    '[4/5] RUN node --check missing.js: exit code 1\nnode:internal/modules/cjs/loader:1386\n  ' +
      "throw err;\n  ^\n\nError: Cannot find module '/app/missing.js'\n    at " +
      'Module._resolveFilename (node:internal)\n\nNode.js v24.1.0',
    "RUN node --check missing.js failed: Cannot find module '/app/missing.js'",
  ],
  [
    'Python',
    'The container exited with code 1\nTraceback (most recent call last):\n  File ' +
      '"/app/main.py", line 1, in <module>\n    import flask\nModuleNotFoundError: No module ' +
      "named 'flask'",
    "The container exited with code 1: ModuleNotFoundError: No module named 'flask'",
  ],
  [
    'npm',
    '[3/5] RUN npm ci: exit code 1\nnpm error code EUSAGE\nnpm error\nnpm error The lock file ' +
      'does not fit',
    'RUN npm ci failed: npm error code EUSAGE',
  ],
  [
    'a compiler',
    '[b 2/2] RUN tsc: exit code 2\nsrc/a.ts(3,5): error TS2304: Cannot find name x.',
    'RUN tsc failed: src/a.ts(3,5): error TS2304: Cannot find name x.',
  ],
  [
    'no known word',
    '[2/2] RUN ./build: exit code 3\nlooking\nno space for chairs',
    'RUN ./build failed: no space for chairs',
  ],
  ['only places', 'It ended:\n    at a\n    at b', 'It ended'],
])('%s', (_what, message, sentence) => expect(errorSentence(message)).toBe(sentence));

test('it is one line of limited length, whatever the message has', () => {
  for (const message of [
    '',
    '\n\n',
    `x${'y'.repeat(5_000)}`,
    `a\n${'Error: z'.repeat(2_000)}`,
    '\r\n a \r\n b',
  ]) {
    expect(errorSentence(message)).not.toMatch(/[\r\n]/);
    expect(errorSentence(message).length).toBeLessThanOrEqual(450);
  }
});
