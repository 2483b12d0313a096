/** Which redirects and submodule addresses git may follow. */
import { expect, it } from 'vitest';
import { gitHost, isListed, redirectTarget, submoduleUrl } from '../../src/git/git-hosts.ts';

const INFO = '/info/refs?service=git-upload-pack';

it.each([
  ['http://h/a.git', `http://h/b.git${INFO}`, 'http://h/b.git'],
  ['http://h/a.git', `/b.git${INFO}`, 'http://h/b.git'],
  ['http://h/a', `https://h/a.git${INFO}`, 'https://h/a.git'],
  ['http://h:8080/a', `https://h:8080/a${INFO}`, 'https://h:8080/a'],
  ['http://h:8080/a', `https://h/a${INFO}`, 'https://h/a'],
  ['https://me@h/a', `https://x:y@H/b${INFO}`, 'https://me@h/b'],
])('%s may redirect to %s', (from, location, to) => {
  expect(redirectTarget(from, location)).toBe(to);
});

it.each([
  ['https://h/a.git', `http://h/a.git${INFO}`],
  ['https://h/a.git', `https://h:8443/a.git${INFO}`],
  ['http://h/a.git', `https://h:8443/a.git${INFO}`],
  ['https://h/a.git', `https://h.evil.example/a.git${INFO}`],
  ['https://h/a.git', `//evil.example/a.git${INFO}`],
  ['https://h/a.git', `https://h@evil.example/a.git${INFO}`],
  ['https://h/a.git', 'file:///etc/passwd'],
  ['https://h/a.git', 'https://h/login?from=a.git'],
  ['https://h/a.git', 'https://h:99999/'],
])('%s may not redirect to %s', (from, location) => {
  expect(() => redirectTarget(from, location)).toThrow(
    expect.objectContaining({ code: 'git_redirect_refused' }) as Error,
  );
});

it.each([
  ['https://h/group/app.git', '../lib.git', 'https://h/group/lib.git'],
  ['https://h/group/app.git', '../../other/lib.git', 'https://h/other/lib.git'],
  ['https://h/app.git', './lib.git', 'https://h/app.git/lib.git'],
  ['git@h:group/app.git', '../lib.git', 'git@h:group/lib.git'],
  ['git@h:app.git', '../lib.git', 'git@h:lib.git'],
  ['ssh://git@h:22/a/app.git', '../lib.git', 'ssh://git@h:22/a/lib.git'],
  ['https://h/app.git', 'https://other/lib.git', 'https://other/lib.git'],
])('a submodule of %s at %s is %s', (parent, url, expected) => {
  expect(submoduleUrl(parent, url)).toBe(expected);
});

it.each([
  ['https://H.example./a', 'h.example'],
  ['git@H:a/b', 'h'],
  ['ssh://git@h:22/a', 'h'],
  ['file:///etc', null],
  ['/etc', null],
  ['../../etc', null],
  ['ext::sh', null],
  ['git@h:-x', null],
  ['--upload-pack=x', null],
  ['git://h/a', null],
])('the host of %s is %s', (url, host) => {
  expect(gitHost(url)).toBe(host);
});

it('a host list has names, and *.name for all subdomains', () => {
  expect(isListed('git.example.org', ['*.Example.org'])).toBe(true);
  expect(isListed('example.org', ['*.example.org'])).toBe(false);
  expect(isListed('evilexample.org', ['*.example.org'])).toBe(false);
  expect(isListed('example.org', ['Example.org.'])).toBe(true);
});
