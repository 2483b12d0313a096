/** The form that creates a notification target. */
import {
  NOTIFICATION_EVENTS,
  NOTIFICATION_KINDS,
  type NotificationEvent,
  type NotificationKind,
} from '@berth/wire/notification';
import { useState } from 'react';
import { useApiMutation } from '../../api/mutations.ts';
import { useApiList } from '../../api/queries.ts';
import { fieldErrors, FormProblem } from '../../parts/problem.tsx';
import { Button } from '../../ui/controls.tsx';
import { ManySelect, Select } from '../../ui/fields.tsx';
import { Column, Columns, Panel, Row } from '../../ui/layout.tsx';
import { TextField } from '../../ui/text-field.tsx';

const KIND_OPTIONS = NOTIFICATION_KINDS.map((value) => ({ value, label: value }));
const EVENT_OPTIONS = NOTIFICATION_EVENTS.map((value) => ({
  value,
  label: value.replace('_', ' '),
}));

type NotificationFormProps = {
  isAdmin: boolean;
  /** `secret` signs the messages to a webhook; it is null for other kinds. */
  onCreated: (secret: string | null) => void;
};
export function NotificationForm({ isAdmin, onCreated }: NotificationFormProps) {
  const projects = useApiList('listProjects', { query: { limit: 200 } });
  const [name, setName] = useState('');
  const [kind, setKind] = useState<NotificationKind>('webhook');
  const [target, setTarget] = useState('');
  const [events, setEvents] = useState<string[]>([...NOTIFICATION_EVENTS]);
  const [onlyProjects, setOnlyProjects] = useState<string[]>([]);
  const create = useApiMutation('createNotification', ({ secret }) => {
    onCreated(secret);
    setName('');
    setTarget('');
  });
  const errors = fieldErrors(create.error);
  const reason =
    !isAdmin && onlyProjects.length === 0 ? 'choose a project; only admins are told of all' : null;
  return (
    <Panel title="New notification" id="new">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const on = events as NotificationEvent[];
          void create.run({ body: { name, kind, target, on, projects: onlyProjects } });
        }}
      >
        <Column gap="sm">
          <Columns most={3}>
            <TextField
              label="Name"
              value={name}
              onChange={setName}
              error={errors['name']}
              required
            />
            <Select label="Kind" value={kind} onChange={setKind} options={KIND_OPTIONS} />
            <TextField
              label={kind === 'email' ? 'E-mail addresses' : 'Address'}
              value={target}
              onChange={setTarget}
              error={errors['target']}
              required
            />
          </Columns>
          <ManySelect
            label="Problems"
            value={events}
            onChange={setEvents}
            options={EVENT_OPTIONS}
            error={errors['on']}
          />
          <ManySelect
            label="Projects"
            help={isAdmin ? 'empty: all projects' : 'at least one'}
            value={onlyProjects}
            onChange={setOnlyProjects}
            options={projects.items.map(({ id, name: label }) => ({ value: id, label }))}
            error={errors['projects']}
          />
          <FormProblem
            error={create.error}
            what="Creating"
            fields={['name', 'target', 'on', 'projects']}
          />
          <Row>
            <Button type="submit" look="main" reason={reason} busy={create.busy}>
              Create
            </Button>
          </Row>
        </Column>
      </form>
    </Panel>
  );
}
