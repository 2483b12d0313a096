/**
 * deploy/prometheus and deploy/grafana: what they name exists, and promtool accepts them.
 * test/e2e/alerts.test.ts fires each alert.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FAILURES } from '@berth/wire/errors';
import { nodeWarning } from '@berth/wire/version';
import { expect, test } from 'vitest';
import { REFUSALS } from '../packages/gateway/src/login/refusal.ts';
import { findProgram } from '../packages/testbed/src/config.ts';
import { noPromtool } from '../packages/testbed/src/promtool.ts';
import { readYaml } from '../packages/testbed/src/yaml.ts';

const ROOT = join(import.meta.dirname, '..');
const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');
type Rule = {
  alert: string;
  expr: string;
  for?: string;
  labels: Record<string, string>;
  annotations: Record<string, string>;
};
const { groups } = (await readYaml(join(ROOT, 'deploy/prometheus/alerts.yml'))) as {
  groups: { rules: Rule[] }[];
};
const rules = groups.flatMap((group) => group.rules);
type Panel = { title: string; description?: string; targets?: { expr: string }[] };
const { panels } = JSON.parse(read('deploy/grafana/berth.json')) as { panels: Panel[] };
const expressions = panels.flatMap(({ targets = [] }) =>
  targets.map(({ expr }) => expr.replaceAll('$__rate_interval', '5m')),
);

/** Runs promtool in a folder with these files. */
function promtool(args: string[], files: Record<string, string>): string {
  const folder = mkdtempSync(join(tmpdir(), 'berth-promtool-'));
  try {
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    const { status, stdout, stderr } = spawnSync(findProgram('promtool') ?? '', args, {
      cwd: folder,
      encoding: 'utf8',
    });
    return status === 0 ? '' : `${stdout}${stderr}`;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
/** The queries of docs/metrics.md. */
const queries = [...read('docs/metrics.md').matchAll(/^```promql\n([^]*?)^```$/gm)].flatMap(
  ([, block = '']) => block.trimEnd().split('\n'),
);
const files = {
  'prometheus.yml': read('deploy/prometheus/prometheus.yml'),
  'alerts.yml': read('deploy/prometheus/alerts.yml'),
};

test('each alert says how bad it is, what it means, and where the instructions are', () => {
  expect(rules.length).toBeGreaterThan(40);
  for (const { alert, labels, annotations } of rules) {
    expect(['critical', 'warning'], alert).toContain(labels['severity']);
    expect(annotations['summary']?.length, alert).toBeGreaterThan(10);
    expect(annotations['description']?.length, alert).toBeGreaterThan(20);
    expect(annotations['runbook_url']).toBe(`docs/alerts.md#${alert.toLowerCase()}`);
  }
  expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length);
});

test('docs/alerts.md has one section for each alert, with its severity and its time', () => {
  const sections = read('docs/alerts.md').split(/^## /m).slice(1);
  const written = sections.map((text) =>
    /^(\w+)\n\n\*\*(\w+)\*\*, (?:after (\w+)|at once)\.\n\n\S/.exec(text)?.slice(1, 4),
  );
  expect(written).toEqual(
    rules.map(({ alert, labels, for: time }) => [alert, labels['severity'], time]),
  );
});

test('alerts, dashboard and queries of docs/metrics.md use only metrics that its tables list', () => {
  const tables = read('docs/metrics.md').match(/^\|.*$/gm) ?? [];
  const known = new Set(tables.join('\n').match(/\bberth_\w+/g));
  const used = [...rules.map(({ expr }) => expr), ...expressions, ...queries].flatMap(
    (expr) => expr.match(/\bberth_[a-z_]*[a-z]\b/g) ?? [],
  );
  expect(used.length).toBeGreaterThan(60);
  const unknown = used.filter((name) => !known.has(name.replace(/_(bucket|count|sum)$/, '')));
  // The pattern of all metrics of build information.
  expect(
    [...new Set(unknown)].filter((name) => !/^berth_(gateway|agent|relay)?$/.test(name)),
  ).toEqual([]);
});

test('the codes in the alerts exist', () => {
  const codes = rules.flatMap(({ expr }) =>
    [...expr.matchAll(/\bcode=~"([^"]+)"/g)].flatMap(([, list = '']) => list.split('|')),
  );
  const names = codes.filter((code) => !/^\d+$/.test(code));
  expect(names.length).toBeGreaterThan(15);
  expect(
    names.filter((code) => !Object.hasOwn(FAILURES, code) && !Object.hasOwn(REFUSALS, code)),
  ).toEqual([]);
});

test('BerthNodeVersionOld fires for the versions for which Berth warns', () => {
  const pattern =
    /node!~"([^"]+)"/.exec(
      rules.find(({ alert }) => alert === 'BerthNodeVersionOld')?.expr ?? '',
    )?.[1] ?? '';
  const versions = [
    '24.0.0',
    '24.9.3',
    '24.21.0',
    '24.22.0',
    '24.22.1',
    '24.22.10',
    '24.23.0',
    '25.1.0',
    '26.0.0',
    '26.12.0',
  ];
  for (const version of [...versions, '26.12.1', '26.13.0', '27.0.0', '30.1.1'])
    expect([version, new RegExp(`^(?:${pattern})$`).test(version)]).toEqual([
      version,
      nodeWarning(version) === null,
    ]);
});

test.skipIf(noPromtool !== '')(`promtool accepts configuration and alerts${noPromtool}`, () => {
  expect(promtool(['check', 'config', 'prometheus.yml'], files)).toBe('');
  expect(promtool(['check', 'rules', 'alerts.yml'], files)).toBe('');
});

test.skipIf(noPromtool !== '')(
  `promtool parses each expression of the dashboard and of docs/metrics.md${noPromtool}`,
  () => {
    expect(expressions.length).toBeGreaterThan(30);
    expect(queries.length).toBeGreaterThan(10);
    const recorded = {
      groups: [
        {
          name: 'dashboard',
          rules: [...expressions, ...queries].map((expr, i) => ({ record: `panel_${i}`, expr })),
        },
      ],
    };
    expect(
      promtool(['check', 'rules', 'rules.yml'], { 'rules.yml': JSON.stringify(recorded) }),
    ).toBe('');
    expect(
      panels.filter(
        ({ title, description, targets = [] }) =>
          targets.length > 0 && (title === '' || description === ''),
      ),
    ).toEqual([]);
  },
);

test.skipIf(noPromtool !== '')(
  `alerts wait as long as they say, and a restart fires none${noPromtool}`,
  () => {
    type Series = { series: string; values: string };
    type Case = { alert: string; series: Series[]; before: string; after: string };
    const up = (values: string): Series[] => [
      { series: 'up{job="berth-control-plane", instance="a"}', values },
    ];
    const cases: Case[] = [
      { alert: 'BerthControlPlaneDown', series: up('1 1 0x20'), before: '3m30s', after: '4m30s' },
      {
        alert: 'BerthProxyNotFetching',
        series: [
          {
            series: 'berth_proxy_fetch_age_seconds{instance="a"}',
            values: '0 30 90 150 210 270 330',
          },
        ],
        before: '3m30s',
        after: '4m30s',
      },
      {
        alert: 'BerthBackupTooOld',
        series: [
          { series: 'berth_backup_interval_seconds{instance="a"}', values: '60x60' },
          { series: 'berth_backup_last_success_timestamp_seconds{instance="a"}', values: '0x60' },
        ],
        // 2 x 60 s + 300 s, then 10 minutes.
        before: '16m',
        after: '19m',
      },
    ];
    const firing = (alert: string, eval_time: string, count: number): object => ({
      expr: `count(ALERTS{alertname="${alert}", alertstate="firing"}) or vector(0)`,
      eval_time,
      exp_samples: [{ labels: '{}', value: count }],
    });
    const tests = cases.map(({ alert, series, before, after }) => ({
      interval: '1m',
      input_series: series,
      promql_expr_test: [firing(alert, before, 0), firing(alert, after, 1)],
    }));
    // A restart of a minute.
    tests.push({
      interval: '1m',
      input_series: up('1 1 0 1x10'),
      promql_expr_test: [firing('BerthControlPlaneDown', '4m', 0)],
    });
    const suite = { rule_files: ['alerts.yml'], evaluation_interval: '15s', tests };
    expect(
      promtool(['test', 'rules', 'tests.yml'], { ...files, 'tests.yml': JSON.stringify(suite) }),
    ).toBe('');
  },
);
