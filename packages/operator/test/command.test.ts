/** Output of the commands: text of other machines cannot steer the terminal. */
import { expect, test, vi } from 'vitest';
import { complain, print } from '../src/lib/command.ts';

test.each([
  ['stdout', print],
  ['stderr', complain],
] as const)('%s gets no control characters', (stream, say) => {
  const written = vi.spyOn(process[stream], 'write').mockReturnValue(true);
  say('a\u001B]0;title\u0007b\u009B2Jc\r\u202Ed\te\nf “é” 日本');
  const [[text] = []] = written.mock.calls;
  written.mockRestore();
  expect(text).toBe('a]0;titleb2Jcd\te\nf “é” 日本\n');
});
