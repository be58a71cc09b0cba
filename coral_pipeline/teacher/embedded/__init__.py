"""The embedded teacher: a small real agent without a language model."""

from coral_pipeline.teacher.embedded.teacher import EmbeddedTeacher as EmbeddedTeacher
