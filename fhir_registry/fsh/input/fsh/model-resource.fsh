Logical: ModelResource
Id: ModelResource
Title: "Model version, flat"
Description: "What a reader who knows no FHIR wants of a model version. A view of the profile cuvil-model-resource; the ConceptMap of the same name says where each element comes from."
* id 1..1 id "Id of the DeviceDefinition"
* versionId 1..1 id "Version of the DeviceDefinition"
* lastUpdated 1..1 instant "When that version was written"
* status 1..1 code "active, unknown while a recertification has failed, or retired once withdrawn"
* name 1..1 string "Name of the model"
* version 1..1 string "Version as the manufacturer counts"
* modelPurpose 0..1 string "Intended use"
* inputProfile 1..* string "Each input: name, type and shape"
* outputProfile 1..* string "Each output: name, type and shape"
* outputConfidence 0..1 string "Name of the output that states confidence"
* arithmetic 1..1 string "Named arithmetic"
* equivalence 1..1 string "Verdict and grade of the comparison with an independent reference"
* manufacturer 0..1 string "Name of the manufacturer"
* identifier 1..* string "Each identifier: SYSTEM|VALUE"
* engine 1..* url "Address of each engine"
* evidence 0..* url "Address of each file of evidence"
* withdrawn 0..1 string "Day and reason of the withdrawal"

RuleSet: Maps(number, from, to)
* group.element[{number}].code = #{from}
* group.element[{number}].target.code = #{to}
* group.element[{number}].target.relationship = #equivalent

Instance: ModelResourceMap
InstanceOf: ConceptMap
Usage: #definition
* id = "ModelResource"
* url = "https://cuvil.org/fhir/ConceptMap/ModelResource"
* version = "1.0.0"
* name = "ModelResourceMap"
* title = "From the flat view to DeviceDefinition"
* status = #active
* description = "Which element of DeviceDefinition each element of the logical model ModelResource is read from."
* group.source = "https://cuvil.org/fhir/StructureDefinition/ModelResource"
* group.target = "https://cuvil.org/fhir/StructureDefinition/cuvil-model-resource"
* insert Maps(0, ModelResource.id, DeviceDefinition.id)
* insert Maps(1, ModelResource.versionId, DeviceDefinition.meta.versionId)
* insert Maps(2, ModelResource.lastUpdated, DeviceDefinition.meta.lastUpdated)
* insert Maps(3, ModelResource.status, DeviceDefinition.modifierExtension:artifactStatus.value[x])
* insert Maps(4, ModelResource.name, DeviceDefinition.deviceName.name)
* insert Maps(5, ModelResource.version, DeviceDefinition.modelNumber)
* insert Maps(6, ModelResource.modelPurpose, DeviceDefinition.guideline.intendedUse)
* insert Maps(7, ModelResource.inputProfile, DeviceDefinition.property:inputProfile.value[x])
* insert Maps(8, ModelResource.outputProfile, DeviceDefinition.property:outputProfile.value[x])
* insert Maps(9, ModelResource.outputConfidence, DeviceDefinition.property:outputConfidence.value[x])
* insert Maps(10, ModelResource.arithmetic, DeviceDefinition.property:arithmetic.value[x])
* insert Maps(11, ModelResource.equivalence, DeviceDefinition.property:equivalence.value[x])
* insert Maps(12, ModelResource.manufacturer, DeviceDefinition.manufacturer.display)
* insert Maps(13, ModelResource.identifier, DeviceDefinition.identifier)
* insert Maps(14, ModelResource.engine, DeviceDefinition.hasPart.reference)
* insert Maps(15, ModelResource.withdrawn, DeviceDefinition.property:withdrawn.value[x])
* group.element[16].code = #ModelResource.evidence
* group.element[16].noMap = true
