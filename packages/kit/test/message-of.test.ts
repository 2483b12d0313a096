import { expect, it } from 'vitest';
import { messageOf } from '../src/message-of.ts';

it('returns the message of an error, and any other value as text', () => {
  expect(messageOf(new TypeError('no such file'))).toBe('no such file');
  expect(messageOf('aborted')).toBe('aborted');
  expect(messageOf(undefined)).toBe('undefined');
});
