/** Accepted and refused repositories, branches and paths, with the rule of each refusal. */
import { describe, expect, test } from 'vitest';
import { branchProblem } from '../../src/domain/git/git-ref.ts';
import { gitUrlProblem } from '../../src/domain/git/git-url.ts';
import { hostProblem } from '../../src/domain/nodes/host.ts';
import { healthPathProblem, mountPathProblem, repoPathProblem } from '@berth/wire/path-rules';

describe('git_url', () => {
  test.each([
    'https://github.com/a/b.git',
    'https://github.com/a/b',
    'http://127.0.0.1:8123/shop.git',
    'https://user@bitbucket.org/team/repo.git',
    'HTTPS://EXAMPLE.com/x',
    'ssh://git@example.com:2222/a/b.git',
    'ssh://example.com/a/b.git',
    'ssh://git@[2001:db8::1]:22/a.git',
    'http://[::1]:8080/a.git',
    'git@github.com:a/b.git',
    'deploy_1@host-1.example.com:/srv/git/a.git',
    'git@host:~user/a',
    'https://example.com/ünïcode.git',
  ])('%s is accepted', (url) => {
    expect(gitUrlProblem(url, { allowedHosts: [] })).toBeNull();
  });

  test.each([
    ['-u=x', 'no_leading_dash'],
    ['--upload-pack=touch /tmp/x', 'no_leading_dash'],
    ['https://exa mple.com/a', 'no_whitespace'],
    ['https://example.com/a\n', 'no_whitespace'],
    ['https://example.com/\u0000', 'no_whitespace'],
    ['https://example.com/\u0085', 'no_whitespace'],
    ['https://example.com\\@evil.com/a', 'no_backslash'],
    ['ext::sh -c id', 'no_whitespace'],
    ['ext::sh', 'scheme'],
    ['EXT::sh', 'scheme'],
    ['fd::17', 'scheme'],
    ['::x', 'scheme'],
    ['file:///etc/passwd', 'scheme'],
    ['FILE:///etc', 'scheme'],
    ['git://example.com/a', 'scheme'],
    ['ftp://example.com/a', 'scheme'],
    ['javascript:alert', 'scheme'],
    ['file:/etc', 'scheme'],
    ['https:example.com/a', 'scheme'],
    ['/srv/git/a.git', 'url'],
    ['../a', 'url'],
    ['a.git', 'url'],
    ['host:path', 'scheme'],
    ['https://', 'url'],
    ['https:///a', 'path'],
    ['https://user:pw@example.com/a', 'no_password'],
    ['https://user:@example.com/a', 'no_password'],
    ['https://:pw@example.com/a', 'no_password'],
    ['https://user:p@w@example.com/a', 'no_password'],
    ['https://ghp_abcdefghijklmnop@github.com/a/b', 'no_password'],
    ['https://github_pat_11AAA@github.com/a/b', 'no_password'],
    ['https://oauth2@gitlab.com/a/b', 'no_password'],
    ['ssh://git:pw@example.com/a', 'no_password'],
    ['git:pw@example.com:a', 'no_password'],
    ['https://example.com/a#main', 'no_fragment'],
    ['https://example.com', 'path'],
    ['https://example.com//', 'path'],
    ['git@example.com:', 'path'],
    ['git@example.com:/', 'path'],
    ['git@example.com:-x', 'no_leading_dash'],
    ['@example.com:a', 'user'],
    ['-x@example.com:a', 'no_leading_dash'],
    ['ssh://-x@example.com/a', 'user'],
    ['ssh://-oProxyCommand=id/a', 'host'],
    ['git@-oProxyCommand=id:a', 'host'],
    ['git@exa_-:a', 'host'],
    ['git@exa$mple:a', 'host'],
    ['https://exa$mple.com/a', 'host'],
    ['https://-a.com/a', 'host'],
    ['ssh://exa%20mple.com/a', 'host'],
    [`https://${'a.'.repeat(130)}com/a`, 'host'],
    ['https://example.com:99999/a', 'url'],
    ['ssh://us%2der:@example.com/a', 'no_password'],
  ])('%s is refused by %s', (url, rule) => {
    expect(gitUrlProblem(url, { allowedHosts: [] })).toMatchObject({ field: 'git_url', rule });
  });

  test.each([
    ['https://github.com/a/b', null],
    ['https://GitHub.com/a/b', null],
    ['https://github.com./a/b', null],
    ['git@git.corp.example:a', null],
    ['https://git.corp.example:8443/a', null],
    ['https://a.b.corp.example/a', null],
    ['https://corp.example/a', 'host_allowed'],
    ['https://evilcorp.example/a', 'host_allowed'],
    ['https://github.com.evil.org/a', 'host_allowed'],
    ['https://github.com@evil.org/a', 'host_allowed'],
  ])('with a list of hosts %s: %s', (url, rule) => {
    expect(
      gitUrlProblem(url, { allowedHosts: ['github.com', '*.corp.example'] })?.rule ?? null,
    ).toBe(rule);
  });
});

describe('branch', () => {
  test.each([
    'main',
    'feature/x',
    'v1.2',
    'a@b',
    'ü',
    '1',
    'a{b',
    'x.locker',
    'refs/heads/x',
    'HEAD2',
  ])('%s is accepted', (name) => {
    expect(branchProblem(name)).toBeNull();
  });
  test.each([
    ['-x', 'no_leading_dash'],
    ['--upload-pack=x', 'no_leading_dash'],
    ['.hidden', 'ref_component'],
    ['a/.b', 'ref_component'],
    ['a.lock', 'ref_component'],
    ['a.lock/b', 'ref_component'],
    ['a..b', 'ref_dots'],
    ['a b', 'ref_characters'],
    ['a\tb', 'ref_characters'],
    ['a\u007fb', 'ref_characters'],
    ['a~b', 'ref_characters'],
    ['a^b', 'ref_characters'],
    ['a:b', 'ref_characters'],
    ['a?', 'ref_characters'],
    ['a*', 'ref_characters'],
    ['a[b', 'ref_characters'],
    ['a\\b', 'ref_characters'],
    ['/a', 'ref_slashes'],
    ['a/', 'ref_slashes'],
    ['a//b', 'ref_slashes'],
    ['a.', 'ref_end'],
    ['@', 'ref_at'],
    ['a@{b', 'ref_at'],
    ['HEAD', 'ref_head'],
  ])('%j is refused by %s', (name, rule) => {
    expect(branchProblem(name)?.rule).toBe(rule);
  });
});

describe('paths', () => {
  test.each([
    'Dockerfile',
    'docker/Dockerfile.prod',
    './Dockerfile',
    '..hidden/Dockerfile',
    'a b/Dockerfile',
  ])('dockerfile_path %s is accepted', (path) => {
    expect(repoPathProblem(path, 'dockerfile_path')).toBeNull();
  });
  test.each([
    ['-f', 'no_leading_dash'],
    ['../Dockerfile', 'no_parent'],
    ['a/../../Dockerfile', 'no_parent'],
    ['a/..', 'no_parent'],
    ['a\\b', 'no_backslash'],
    ['a\u0000b', 'no_control'],
    ['a\nb', 'no_control'],
    ['/etc/passwd', 'relative'],
    ['C:/x', 'relative'],
    ['docker/', 'file'],
    ['.', 'file'],
    ['a/.', 'file'],
    [' ', 'file'],
  ])('dockerfile_path %j is refused by %s', (path, rule) => {
    expect(repoPathProblem(path, 'dockerfile_path')?.rule).toBe(rule);
  });
  test.each([
    ['/data', null],
    ['/data/a.b', null],
    ['/', 'mountable'],
    ['/proc', 'mountable'],
    ['/sys/fs', 'mountable'],
    ['/device', null],
    ['/a/../b', 'no_parent'],
    ['/a//b', 'normal'],
    ['/a/', 'normal'],
    ['/a/./b', 'normal'],
    ['/a:b', 'no_separator'],
    ['/a,b', 'no_separator'],
    ['a', 'absolute'],
  ])('mount_path %s: %s', (path, rule) => {
    expect(mountPathProblem(path, 'mount_path')?.rule ?? null).toBe(rule);
  });
  test.each([
    ['/', null],
    ['/healthz?full=1', null],
    ['//evil.example/x', 'path_only'],
    ['/a#b', 'no_fragment'],
    ['/a\\b', 'no_backslash'],
  ])('health_path %s: %s', (path, rule) => {
    expect(healthPathProblem(path, 'health_path')?.rule ?? null).toBe(rule);
  });
  test.each([
    ['10.0.0.1', null],
    ['::1', null],
    ['fe80::1', null],
    ['node-1.internal', null],
    ['', 'host'],
    ['999.1.1.1', 'host'],
    [':::', 'host'],
    ['10.0.0.1:80', 'host'],
    ['a/b', 'host'],
    ['a b', 'host'],
    ['a@b', 'host'],
    ['-a', 'host'],
    ['a`b', 'host'],
  ])('host_ip %s: %s', (host, rule) => {
    expect(hostProblem(host, 'host_ip')?.rule ?? null).toBe(rule);
  });
});
