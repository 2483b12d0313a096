/** For Prometheus. What the hot path counts it counts itself; it is read when somebody asks. */
import { collectDefaultMetrics, Counter, Gauge, Registry } from 'prom-client';
import type { PolicyFollower } from './policy.ts';
import type { Verify } from './verify.ts';

export type Metrics = { registry: Registry; render(): Promise<{ type: string; text: string }> };

export function createMetrics(verify: Verify, policy: PolicyFollower, processMetrics: boolean): Metrics {
  const registry = new Registry();
  if (processMetrics) collectDefaultMetrics({ register: registry });
  registry.registerMetric(
    new Counter({
      name: 'berth_verify_total',
      help: 'Answers of /verify; `kept`: from what was decided before',
      labelNames: ['outcome'],
      registers: [],
      collect() {
        this.reset();
        for (const [outcome, value] of Object.entries(verify.counts())) this.inc({ outcome }, value);
      },
    }),
  );
  const gauge = (name: string, help: string, aggregator: 'max' | 'sum', read: () => number): void =>
    registry.registerMetric(
      new Gauge({
        name,
        help,
        aggregator,
        registers: [],
        collect() {
          this.set(read());
        },
      }),
    );
  gauge('berth_policy_age_seconds', 'Since the control plane last said that the policy holds; -1: none was ever had', 'max', () => {
    const ms = policy.ageMs();
    return ms === null ? -1 : ms / 1000;
  });
  gauge('berth_revocations_untold', 'Logouts the control plane has not heard of yet', 'sum', () => policy.untold());
  return { registry, render: async () => ({ type: registry.contentType, text: await registry.metrics() }) };
}
