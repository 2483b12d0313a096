/** Which Dockerfile frontends are found and allowed. */
import { expect, it } from 'vitest';
import { checkFrontend, syntaxOf } from '../../src/build/frontend.ts';

it.each([
  ['FROM x', null],
  ['# syntax=docker/dockerfile:1\nFROM x', 'docker/dockerfile:1'],
  ['\u{FEFF}# Syntax = evil/frontend:1 with words\nFROM x', 'evil/frontend:1'],
  ['#!/usr/bin/env docker\n# syntax=evil/frontend\nFROM x', 'evil/frontend'],
  ['# escape=`\r\n#syntax=evil/frontend\r\nFROM x', 'evil/frontend'],
  ['// syntax=evil/frontend\nFROM x', 'evil/frontend'],
  ['{"syntax": "evil/frontend:2", "x": 1}', 'evil/frontend:2'],
  ['{"s\\u0079ntax": "evil/frontend:3"}', 'evil/frontend:3'],
  ['{"syntax": "own/front", "SYNTAX": "evil/frontend"}', '(a document in JSON)'],
  ['#!/usr/bin/env docker\n{"syntax": "evil/frontend:4"}', 'evil/frontend:4'],
  ['# a comment\n\n {"syntax": "evil/frontend:5"}', 'evil/frontend:5'],
  ['{"syntax": "x",}', '(a document in JSON)'],
  ['FROM x\n# syntax=evil/frontend', null],
])('the frontend that %j asks for is %s', (text, expected) => {
  expect(syntaxOf(text)).toBe(expected);
});

it.each([
  'docker/dockerfile',
  'docker/dockerfile:1',
  'docker.io/docker/dockerfile:1.7-labs',
  'docker/dockerfile:latest',
  'own.example:5000/front:3',
  'own.example:5000/pinned@sha256:1',
])('%s is allowed', (reference) => {
  expect(() =>
    checkFrontend(`# syntax=${reference}\n`, [
      'own.example:5000/front',
      'own.example:5000/pinned@sha256:1',
    ]),
  ).not.toThrow();
});

it.each([
  'evil/dockerfile:1',
  'evil.example/docker/dockerfile:1',
  'docker.io/docker/dockerfile.evil.example/x',
  'docker/dockerfile-upstream:master',
  // These are, or may be, older than BUILDKIT_CACHE_MOUNT_NS.
  'docker/dockerfile:1.0-experimental',
  'docker/dockerfile:1.1',
  'docker/dockerfile:1@sha256:0',
  'own.example:5000/pinned@sha256:2',
])('%s is refused by its name', (reference) => {
  expect(() =>
    checkFrontend(`# syntax=${reference}\n`, ['own.example:5000/pinned@sha256:1']),
  ).toThrow(
    expect.objectContaining({
      code: 'build_frontend_refused',
      message: expect.stringContaining(reference),
    }) as Error,
  );
});
