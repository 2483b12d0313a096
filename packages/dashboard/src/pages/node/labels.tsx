/** The labels of a node, and the form with which an admin sets and removes them. */
import type { Node } from '@berth/wire/node';
import { useState } from 'react';
import { useApiMutation } from '../../api/mutations.ts';
import { useReasons } from '../../parts/permissions.ts';
import { Problem } from '../../parts/problem.tsx';
import { Button } from '../../ui/controls.tsx';
import { TagsField } from '../../ui/fields.tsx';
import { Column, Panel } from '../../ui/layout.tsx';
import { Text } from '../../ui/text.tsx';

type Labels = Readonly<Record<string, string>>;
const linesOf = (labels: Labels): string[] =>
  Object.entries(labels).map(([key, value]) => `${key}=${value}`);

export function NodeLabels({ node }: { node: Node }) {
  const own = Object.entries(node.labels).filter(([key]) => !(key in node.admin_labels));
  return (
    <Panel title="Labels" id="labels">
      <Column gap="sm">
        <Text>
          {own.length === 0
            ? 'The agent sets no labels (NODE_LABELS).'
            : `Set by the agent: ${linesOf(Object.fromEntries(own)).join(', ')}`}
        </Text>
        <AdminLabels key={JSON.stringify(node.admin_labels)} node={node} />
      </Column>
    </Panel>
  );
}

function AdminLabels({ node }: { node: Node }) {
  const [lines, setLines] = useState(() => linesOf(node.admin_labels));
  const patch = useApiMutation('patchNode');
  const reasonAgainst = useReasons();
  const labels = changesOf(node.admin_labels, lines);
  return (
    <>
      <TagsField
        label="Labels of admins"
        help="name=value; they win over those of the agent, and projects can require them"
        error={undefined}
        value={lines}
        onChange={(next) => setLines(next.filter((line) => /^[^=]+=./.test(line)))}
      />
      <Problem error={patch.error} what="The change" />
      <Button
        reason={
          reasonAgainst('label_node', node) ??
          (Object.keys(labels).length === 0 ? 'nothing has changed' : null)
        }
        busy={patch.busy}
        onClick={() => void patch.run({ params: { id: node.id }, body: { labels } })}
      >
        Save the labels
      </Button>
    </>
  );
}

/** Returns the patch: null removes a label. */
function changesOf(before: Labels, lines: readonly string[]): Record<string, string | null> {
  const next = Object.fromEntries(
    lines.map((line) => {
      const at = line.indexOf('=');
      return [line.slice(0, at).trim(), line.slice(at + 1).trim()] as const;
    }),
  );
  const removed = Object.keys(before).filter((key) => !Object.hasOwn(next, key));
  const changed = Object.entries(next).filter(([key, value]) => before[key] !== value);
  return Object.fromEntries([...changed, ...removed.map((key) => [key, null] as const)]);
}
